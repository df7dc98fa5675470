"""The Temporal server of one home: how it is launched, and what it must know before it counts as ready."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attributes import ATTRIBUTES
from ports import LOOPBACK, choose_ports, listens
from runtime import CannotDo, dial
from server_version import check_server, note_server
from services import Service, environment_without
from soundness import check_database

if TYPE_CHECKING:
    from temporalio.client import Client

RETENTION = timedelta(hours=720)
"""How long closed workflows stay. Temporal's default of 24 h would lose the ended tasks of a run that takes days."""

SERVER_OPTIONS = (
    *("--ip", LOOPBACK, "--log-level", "warn", "--ui-disable-news-fetch"),
    # FULL: an acknowledged event survives a power cut. It costs about 8 % of the tasks per second (measured).
    *("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"),
    # The HTTP API takes posts from any web page and cannot be turned off: a host that nobody has closes it.
    *("--dynamic-config-value", 'frontend.httpAllowedHosts=["disabled.invalid"]'),
    # One task alone takes 52 ms instead of 215.
    *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=100"),
    # A small run does not wait behind a large one; this holds within one partition only.
    *("--dynamic-config-value", "matching.enableFairness=true"),
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
    # Many people may steer at once. Beyond this number a change is refused, and each refusal drops those under way.
    *("--dynamic-config-value", "history.maxInFlightUpdates=500"),
    *(word for name, type in ATTRIBUTES.items() for word in ("--search-attribute", f"{name}={type}")),
)


class Server(Service):
    """Temporal on a SQLite file. It has no authentication: whoever may open a port of this machine may use it."""

    launches = 2  # a free port can be taken before the server listens on it

    def __init__(self, home: Path, *, anyway: bool = False) -> None:
        super().__init__(home, "server")
        self.anyway = anyway

    def command(self) -> list[str]:
        """Temporal's development server; no variable and no profile file can send it elsewhere."""
        binary = temporal_binary()
        check_database(self.home)
        check_server(self.home, binary, anyway=self.anyway)
        ports = choose_ports(self.file("ports.json"), ("grpc", "ui", "http", "metrics"))
        where = ["--db-filename", str(self.home / "temporal.db"), "--port", str(ports["grpc"])]
        for kind in "ui", "http", "metrics":
            where += [f"--{kind}-port", str(ports[kind])]
        alone = ["--disable-config-file", "--disable-config-env", "--env-file", os.devnull]
        return [binary, "server", "start-dev", *alone, *where, *SERVER_OPTIONS]

    def environment(self) -> dict[str, str]:
        """Ours without anything that configures Temporal or holds a secret."""
        return environment_without("TEMPORAL_", "ANTHROPIC_", "OTEL_", "NIGHTCREW_")

    async def ready(self) -> dict[str, Any] | None:
        """Its addresses, once it answers, knows the namespace, and keeps closed workflows long enough."""
        ports = json.loads(self.file("ports.json").read_text("utf-8"))
        address = f"{LOOPBACK}:{ports['grpc']}"
        if not listens(ports["grpc"]):
            return None
        from temporalio.service import RPCError  # noqa: PLC0415 - heavy

        try:
            version = await _prepare(await dial(address))
        except (RuntimeError, RPCError, TimeoutError):
            return None
        note_server(self.home, version)
        return {"address": address, "web_ui": f"http://{LOOPBACK}:{ports['ui']}", "version": version}


def temporal_binary() -> str:
    """The `temporal` command that was installed with us, else one on the PATH."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise CannotDo("The `temporal` command is missing. Run `make install`, which installs it into .venv.")
    return found


async def _prepare(client: Client) -> str:
    """The server's version, after the default namespace was told how long to keep closed workflows."""
    from google.protobuf.duration_pb2 import Duration  # noqa: PLC0415 - heavy, as all of Temporal
    from temporalio.api.namespace.v1 import NamespaceConfig  # noqa: PLC0415
    from temporalio.api.workflowservice.v1 import (  # noqa: PLC0415
        DescribeNamespaceRequest,
        GetSystemInfoRequest,
        UpdateNamespaceRequest,
    )

    service = client.workflow_service
    found = await service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    if found.config.workflow_execution_retention_ttl.ToTimedelta() < RETENTION:
        retention = Duration()
        retention.FromTimedelta(RETENTION)
        config = NamespaceConfig(workflow_execution_retention_ttl=retention)
        await service.update_namespace(UpdateNamespaceRequest(namespace=client.namespace, config=config))
    return (await service.get_system_info(GetSystemInfoRequest())).server_version
