"""What a Temporal server and its namespace must offer for runs of many days."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Awaitable
from datetime import timedelta
from typing import TYPE_CHECKING

from attributes import ATTRIBUTES
from checkup.findings import Finding, note, ok, problem
from pollers import workers_on
from runtime import CannotDo, Mode, queue_of
from temporal_server import RETENTION, temporal_binary

if TYPE_CHECKING:
    from temporalio.client import Client

LONGEST_RUN = timedelta(days=14)


async def asked(name: str, check: Awaitable[Finding]) -> Finding:
    """What a check finds; what a server does not let us ask is told, and the other checks go on."""
    from temporalio.service import RPCError, RPCStatusCode  # noqa: PLC0415

    try:
        return await check
    except RPCError as error:
        if error.status in {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED}:
            return note(name, "This Temporal does not let us ask.")
        what = f"Temporal did not answer: {error.message}."
        return problem(name, what, "Ask again in a moment; look at the server and its log if it stays so.")


async def server_answers(client: Client) -> Finding:
    """Where the server is, and its version."""
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest  # noqa: PLC0415 - heavy, as all of Temporal

    version = (await client.workflow_service.get_system_info(GetSystemInfoRequest())).server_version
    where = client.service_client.config.target_host
    return ok("temporal", f"{where}, server {version}, namespace {client.namespace}")


async def retention_is_long(client: Client) -> Finding:
    """Closed tasks must outlive the longest run they belong to."""
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest  # noqa: PLC0415
    from temporalio.service import RPCError, RPCStatusCode  # noqa: PLC0415

    try:
        found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        what = f"There is no namespace {client.namespace!r} on this Temporal."
        words = f"--namespace {client.namespace} --retention {RETENTION.days * 24}h{_address(client)}"
        return problem("namespace", what, f"Set TEMPORAL_NAMESPACE, or: {_command()} operator namespace create {words}")
    kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
    days = f"{kept / timedelta(days=1):g} days"
    if kept > LONGEST_RUN:
        return ok("retention", f"closed workflows are kept for {days}")
    return problem(
        "retention",
        f"Closed workflows are kept for {days} only; the ended tasks of a run of 14 days would vanish before its end.",
        f"{_command()} operator namespace update --namespace {client.namespace} --retention {RETENTION.days * 24}h"
        f"{_address(client)}",
    )


async def attributes_exist(client: Client) -> Finding:
    """Runs work without search attributes, but cannot be filtered by them in the Web UI."""
    from temporalio.api.enums.v1 import IndexedValueType  # noqa: PLC0415
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest  # noqa: PLC0415

    request = ListSearchAttributesRequest(namespace=client.namespace)
    found = await client.operator_service.list_search_attributes(request)
    missing = {name: kind for name, kind in ATTRIBUTES.items() if name not in found.custom_attributes}
    kinds = {name: IndexedValueType.Name(kind) for name, kind in found.custom_attributes.items()}
    wrong = [name for name, kind in ATTRIBUTES.items() if not kinds.get(name, kind).upper().endswith(kind.upper())]
    if wrong:
        return problem(
            "search attributes",
            f"{', '.join(wrong)} {'has' if len(wrong) == 1 else 'have'} another type than {ATTRIBUTES[wrong[0]]}.",
            f"{_command()} operator search-attribute remove --namespace {client.namespace} "
            f"{' '.join(f'--name {name}' for name in wrong)}{_address(client)}, then doctor again",
        )
    if not missing:
        return ok("search attributes", ", ".join(ATTRIBUTES))
    words = " ".join(f"--name {name} --type {kind}" for name, kind in missing.items())
    return problem(
        "search attributes",
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: "
        "runs work, but the Web UI cannot filter them.",
        f"{_command()} operator search-attribute create --namespace {client.namespace} {words}{_address(client)}",
    )


async def workers_poll(client: Client, mode: Mode, *, remedy: str) -> Finding:
    """Somebody must work on the queue of a mode, or its runs wait for ever."""
    queue = queue_of(mode)
    count = await workers_on(client, queue)
    if count:
        return ok(f"worker, {mode}", f"{count} on the queue {queue}")
    return problem(f"worker, {mode}", f"Nobody works on the queue {queue}: {mode} runs wait.", remedy)


def _command() -> str:
    """Temporal's own command as this machine has it: few have it on their PATH, and a remedy must be one to type."""
    if shutil.which("temporal"):
        return "temporal"
    try:
        return shlex.quote(temporal_binary())
    except CannotDo:
        return "temporal"


def _address(client: Client) -> str:
    return f" --address {client.service_client.config.target_host}"
