"""The compose file, the image and the jobs, as far as they can be tried without Docker.

The daemon does not run where these tests run. So the files are checked as data, the image is put together as a folder,
and the commands and health checks of our services are run in it as they are written.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from embedded import find_server
from ports import choose_ports
from runtime import REGION_VARIABLE, ROOT, Mode, Settings, queue_of
from sealing import KEY
from temporal_server import RETENTION, SERVER_OPTIONS, temporal_binary

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
WORKERS = {"worker", "worker-live"}
JOBS = {"schema", "namespace"}
COMMANDS = {"starter", "starter-live"}
AWS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "ENDPOINT", "ALLOW_HTTP")
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")

every_service = pytest.mark.parametrize("name", SERVICES)


# --- the compose file as data ---


def docker_compose() -> list[str]:
    command = ["docker", "compose"]
    if (
        shutil.which("docker")
        and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode
    ):
        return command
    pytest.skip("docker compose is not installed here")


@pytest.mark.parametrize("profile", [[], ["--profile", "*"]])
def test_docker_compose_accepts_the_file(profile: list[str]) -> None:
    """It needs no daemon for that."""
    command = [*docker_compose(), *profile, "config", "--quiet"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@every_service
def test_an_image_is_pinned(name: str) -> None:
    image = SERVICES[name]["image"]

    assert image == "nightcrew:local" if name in OURS else re.search(r":\d+\.\d+(\.\d+)?$", image), image


def test_temporal_is_the_version_that_all_other_tests_run_on() -> None:
    said = subprocess.run([temporal_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Server (\S+), UI (\S+)\)", said)
    assert found is not None
    server, ui = found.groups()

    assert SERVICES["temporal"]["image"] == f"temporalio/server:{server}"
    assert {SERVICES[job]["image"] for job in JOBS} == {f"temporalio/admin-tools:{server}"}
    assert SERVICES["web-ui"]["image"] == f"temporalio/ui:{ui}"


def test_only_temporal_and_its_web_ui_are_published_and_only_on_this_machine() -> None:
    """Neither asks for a password."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {"temporal": ["127.0.0.1:7233:7233"], "web-ui": ["127.0.0.1:8080:8080"]}
    assert not any("network_mode" in service for service in SERVICES.values())


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_workers_can_be_scaled(name: str) -> None:
    """What there can be but one of is not in their description."""
    assert not {"container_name", "hostname", "ports"} & SERVICES[name].keys()


@every_service
def test_what_goes_on_is_watched_over_and_started_again(name: str) -> None:
    service = SERVICES[name]
    if name in COMMANDS:
        assert service["profiles"]  # `up` does not start it
    elif name in JOBS:
        assert service["restart"] == "on-failure:5"
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"].get("test") or name == "otel-collector"


@every_service
def test_a_service_waits_for_what_it_needs_to_be_ready(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        ready = "service_completed_successfully" if needed in JOBS else "service_healthy"

        assert how == {"condition": ready}
        assert "profiles" not in SERVICES[needed]


def test_a_worker_has_longer_to_end_than_it_takes_for_calls_to_end() -> None:
    from worker import GRACE

    for name in WORKERS:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > GRACE.total_seconds()


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_do_little(name: str) -> None:
    service = OURS[name]

    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("user") is None  # that of the image
    assert not service.get("privileged")
    assert not [volume for volume in service.get("volumes", []) if "docker.sock" in volume]


def test_no_secret_is_written_down() -> None:
    """A password is that of .env, with a default that says what it is good for; keys are handed on by name alone."""
    secret = re.compile("PASSWORD|PWD|KEY|SECRET|TOKEN")
    found = {
        value
        for service in SERVICES.values()
        for key, value in service.get("environment", {}).items()
        if secret.search(key)
    }

    assert found == {None, "${POSTGRES_PASSWORD:-for-local-use-only}"}


def test_only_live_services_get_the_credentials_of_the_provider() -> None:
    given = {
        name
        for name, service in SERVICES.items()
        if [key for key in service.get("environment", {}) if key.startswith("ANTHROPIC_")]
    }

    assert given == {"worker-live", "starter-live"}


@pytest.mark.parametrize("name", OURS)
def test_every_variable_means_something(name: str) -> None:
    ours = {KEY, REGION_VARIABLE, *(f"NIGHTCREW_{key.upper()}" for key in (*Settings.model_fields, "web_ui"))}
    temporal = {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"}
    anthropic = {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"}
    aws = {f"AWS_{key}" for key in AWS}

    given = OURS[name].get("environment", {}).keys()

    assert given <= ours | temporal | anthropic | aws | {"OTEL_EXPORTER_OTLP_ENDPOINT"}


def test_everyone_who_reads_or_writes_runs_has_the_same_store() -> None:
    users = [SERVICES[name] for name in WORKERS | COMMANDS]

    assert {user["environment"]["NIGHTCREW_STORE"] for user in users} == {"${NIGHTCREW_STORE:-/store}"}
    assert all("store:/store" in user["volumes"] for user in users)
    assert COMPOSE["volumes"].keys() == {"postgres", "store"}


def test_each_worker_is_on_the_queue_of_its_mode() -> None:
    queues = {name: SERVICES[name]["command"][SERVICES[name]["command"].index("--queue") + 1] for name in WORKERS}

    assert queues == {"worker": queue_of(Mode.SIMULATED), "worker-live": queue_of(Mode.LIVE)}


def test_the_example_of_an_env_file_names_what_the_compose_file_reads() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    names = re.findall(r"^#?([A-Z][A-Z_]+)=", (ROOT / "deploy" / "env.example").read_text("utf-8"), re.MULTILINE)

    assert "POSTGRES_PASSWORD" in names
    assert [name for name in names if name not in text] == []
    assert ".env" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_the_page_for_operators_speaks_of_services_and_profiles_that_there_are() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    commands = [line for line in page.splitlines() if line.startswith("docker compose")]
    profiles = {profile for service in SERVICES.values() for profile in service.get("profiles", [])}

    def named(option: str) -> set[str]:
        return {name for command in commands for name in re.findall(option, command)}

    assert len(commands) > 10
    assert named(r"--scale ([\w-]+)=") == WORKERS
    assert named(r" run --rm (?:-T )?(?:-v \S+ )?([\w-]+)") == COMMANDS
    assert named(r"--profile ([\w-]+)") == profiles - {"starter"}  # `run` needs no profile
    assert named(r" (?:logs -f|exec) (?:-T )?([\w-]+)") <= SERVICES.keys()


@every_service
def test_mounted_files_are_there_and_cannot_be_changed(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source, _, rest = volume.partition(":")
        if source.startswith("./"):
            assert (ROOT / source).exists()
            assert rest.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


# --- what Temporal is told ---


def options(flag: str) -> dict[str, str]:
    """The values of a flag of the embedded server, which are NAME=VALUE."""
    return dict(value.split("=", 1) for name, value in pairwise(SERVER_OPTIONS) if name == flag)


def test_the_server_is_told_the_same_as_the_embedded_one() -> None:
    told = yaml.safe_load((ROOT / "deploy" / "dynamicconfig.yaml").read_text("utf-8"))

    assert {key: [{"value": json.loads(value)}] for key, value in options("--dynamic-config-value").items()} == told


async def test_the_namespace_is_made_once_and_again(temporal: Client, settings: Settings) -> None:
    """As the container does it, with the same command of Temporal's, on a real server."""
    server = find_server(settings.home)
    assert server is not None
    name = "made-by-the-job"
    environment = {
        "PATH": f"{Path(temporal_binary()).parent}:{os.environ['PATH']}",
        "HOME": str(settings.home),
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": name,
    }

    for _ in range(2):
        job = await asyncio.create_subprocess_exec("/bin/sh", "deploy/namespace.sh", cwd=ROOT, env=environment)
        assert await job.wait() == 0

    found = await temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    columns = found.config.custom_search_attribute_aliases
    assert found.config.workflow_execution_retention_ttl.ToTimedelta() == RETENTION
    assert {name: column.rstrip("0123456789") for column, name in columns.items()} == options("--search-attribute")


SQL_TOOL = """#!/bin/sh
# Stands in for temporal-sql-tool: a database has a schema from setup-schema on.
while [ $# -gt 0 ]; do
    case $1 in --db) database=$2 ;; esac
    case $1 in
        create) echo "$database create" >>"$LOG"; exit 0 ;;
        setup-schema) echo "$database setup" >>"$LOG"; touch "$LOG.$database"; exit 0 ;;
        update-schema) echo "$database update" >>"$LOG"; test -f "$LOG.$database"; exit ;;
    esac
    shift
done
exit 2
"""


def test_the_schema_is_set_up_once_and_brought_up_to_date_at_every_start(tmp_path: Path) -> None:
    """Temporal's own tool cannot run here: this is about the order in which it is asked."""
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(SQL_TOOL, "utf-8")
    tool.chmod(0o755)
    environment = {
        **{key: str(value) for key, value in SERVICES["schema"]["environment"].items()},
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
    }

    def start() -> list[str]:
        (tmp_path / "log").write_text("")
        subprocess.run(["/bin/sh", "deploy/schema.sh"], cwd=ROOT, env=environment, check=True, capture_output=True)
        return (tmp_path / "log").read_text().splitlines()

    databases = ("temporal", "temporal_visibility")
    assert start() == [f"{name} {step}" for name in databases for step in ("create", "update", "setup", "update")]
    assert start() == [f"{name} {step}" for name in databases for step in ("create", "update")]
    tool.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        start()


def test_the_collector_has_a_receiver_and_an_exporter_for_every_pipeline() -> None:
    told = yaml.safe_load((ROOT / "deploy" / "otel-collector.yaml").read_text("utf-8"))

    assert told["service"]["extensions"] == list(told["extensions"])
    for pipeline in told["service"]["pipelines"].values():
        for kind in "receivers", "processors", "exporters":
            assert {*pipeline[kind]} <= told[kind].keys()


# --- the image ---


def in_context(path: str) -> bool:
    """Whether the build gets a path to see: the last line of .dockerignore that fits it decides."""
    names, sent = path.split("/"), True
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        deep = pattern.startswith("**/")
        assert deep or "/" not in pattern, "only what this function knows how to read"
        if any(fnmatchcase(name, pattern.removeprefix("**/")) for name in (names if deep else names[:1])):
            sent = line.startswith("!")
    return sent


def test_the_image_has_what_we_import_and_nothing_that_it_must_not_have() -> None:
    never = [".env", ".git/config", ".venv/bin/python", ".nightcrew/temporal.db", ".nightcrew-demo/store/x"]
    never += ["tests/conftest.py", "docs/deploy.md", "deploy/env.example", "domain/__pycache__/x.pyc", "x.pyc"]
    packages = [path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in {"tests", "proof"}]

    assert [path for path in never if in_context(path)] == []
    assert [name for name in packages if not in_context(f"{name}/__init__.py")] == []
    assert all(in_context(path.name) for path in ROOT.glob("*.py"))
    assert all(in_context(path) for path in ("agents.yaml", "requirements.lock", "examples/competitor-brief.yaml"))


def instructions(kind: str) -> list[str]:
    return re.findall(rf"^{kind} (.+)$", DOCKERFILE, re.MULTILINE)


def test_the_image_is_built_from_what_is_pinned_and_runs_as_nobody_special() -> None:
    bases = {line.partition(" ")[0] for line in instructions("FROM")}
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]

    assert len(bases) == 1  # an environment made for another Python would not run
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", bases.pop())
    assert [run for run in instructions("RUN") if "pip install" in run and "--require-hashes" in run]
    assert instructions("USER") == ["10001:10001"]
    assert lines.index("USER 10001:10001") > max(i for i, line in enumerate(lines) if line.startswith(("RUN", "COPY")))
    assert instructions("ARG") == []  # what a build is told stays in the image
    assert instructions("ADD") == []


def test_the_dockerfile_copies_what_there_is() -> None:
    sources = [line.split()[:-1] for line in instructions("COPY") if "--from" not in line]

    assert sources == [["requirements.lock"], ["."]]
    assert "RUN python -m venv .venv" in DOCKERFILE  # beside starter.py, which looks for it there


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder /app of the image."""
    app = tmp_path_factory.mktemp("image")
    for path in ROOT.iterdir():
        if in_context(path.name) and path.is_dir():
            shutil.copytree(path, app / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif in_context(path.name):
            shutil.copy(path, app)
    (app / ".venv").symlink_to(ROOT / ".venv")
    return app


class Containers:
    """Runs what the compose file says of a service, in the image's folder, with ports that are free here."""

    def __init__(self, image: Path, temporal: str, folder: Path) -> None:
        self._image, self._folder = image, folder
        free = [str(port) for port in choose_ports(folder / "ports.json", ("simulator", "health")).values()]
        self._changes = {
            "temporal:7233": temporal,
            "${NIGHTCREW_STORE:-/store}": str(folder / "store"),
            "http://simulator:8090": f"http://127.0.0.1:{free[0]}",
            "8090": free[0],
            "8081": free[1],
        }
        (folder / "store").mkdir()

    def _here(self, text: str) -> str:
        for there, here in self._changes.items():
            if there in text:
                return text.replace(there, here)
        return text

    def _environment(self, name: str) -> dict[str, str]:
        given = {key: value for key, value in SERVICES[name].get("environment", {}).items() if value is not None}
        return {
            "PATH": f"{self._image}/.venv/bin:{os.environ['PATH']}",
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "NIGHTCREW_HOME": str(self._folder / name),
            **{key: self._here(value) for key, value in given.items()},
        }

    async def start(self, name: str, *words: str) -> asyncio.subprocess.Process:
        service = SERVICES[name]
        command = [*service.get("entrypoint", []), *(words or service["command"])]
        return await asyncio.create_subprocess_exec(
            *(self._here(word) for word in command),
            cwd=self._image,
            env=self._environment(name),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def is_healthy(self, name: str) -> bool:
        kind, *command = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        check = await asyncio.create_subprocess_exec(
            *(self._here(word) for word in command), env=self._environment(name), stderr=asyncio.subprocess.DEVNULL
        )
        return await check.wait() == 0


@pytest.fixture
def containers(temporal: Client, settings: Settings, image: Path, tmp_path: Path) -> Containers:
    server = find_server(settings.home)
    assert server is not None
    return Containers(image, server.address, tmp_path)


async def test_our_services_work_as_the_compose_file_starts_them(containers: Containers, tmp_path: Path) -> None:
    """Simulator and worker become healthy, a run ends well, and both end well when they are told to."""
    running = {name: await containers.start(name) for name in ("simulator", "worker")}
    try:
        for name, process in running.items():
            while not await containers.is_healthy(name):
                assert process.returncode is None
                await asyncio.sleep(0.2)

        starter = await containers.start("starter", "run", "examples/competitor-brief.yaml", "--json")
        out, _ = await starter.communicate()
        report = json.loads(out)
        looking = await containers.start("starter", "status", report["run"], "--json")
        seen, _ = await looking.communicate()
    finally:
        for process in running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        codes = [await process.wait() for process in running.values()]

    assert (starter.returncode, report["status"], report["simulated"]) == (0, "COMPLETED", True)
    assert json.loads(seen)["status"] == "COMPLETED"
    assert codes == [0, 0]
    assert not [name for name in running if await containers.is_healthy(name)]
    assert not (tmp_path / "starter" / "services" / "worker-simulated.lock").exists()


async def test_a_live_worker_without_a_key_says_so(containers: Containers) -> None:
    worker = await containers.start("worker-live")

    assert await worker.wait() == 1
