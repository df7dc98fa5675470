"""The doors of the single modules; those of the packages are checked by import-linter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ROOMS = ("activities", "checkup", "domain", "proof", "simulator", "telemetry", "terminal", "workflows")

NEVER = {
    "absence.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "store", "domain"},
    "store.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "write_once.py": {"activities", "workflows", "client", "worker", "runtime", "store", "domain", "temporalio"},
    "client.py": {"activities", "worker", "embedded", "terminal", "runtime", "anthropic"},
    "books.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "registers.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "agency.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "entries.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "sealing.py": {
        "activities",
        "workflows",
        "client",
        "worker",
        "runtime",
        "store",
        "terminal",
        "temporalio",
        "domain",
    },
    "database.py": {
        "activities",
        "workflows",
        "client",
        "worker",
        "runtime",
        "store",
        "terminal",
        "temporalio",
        "domain",
    },
    "soundness.py": {"activities", "workflows", "client", "worker", "store", "terminal", "temporalio", "domain"},
    "backing_up.py": {"activities", "workflows", "client", "worker", "terminal", "temporalio"},
    "restoring.py": {"activities", "workflows", "client", "worker", "terminal", "temporalio"},
    "pruning.py": {"activities", "workflows", "worker", "terminal", "embedded", "runtime"},
    "boards.py": {"activities", "worker", "embedded", "terminal", "runtime", "client", "temporalio"},
    "quotas.py": {"worker", "embedded", "terminal", "runtime", "client", "anthropic"},
    "event_log.py": {"activities", "workflows", "client", "reader", "worker", "runtime", "terminal", "temporalio"},
    "bookmarks.py": {"activities", "workflows", "client", "reader", "worker", "runtime", "terminal", "temporalio"},
    "reader.py": {"activities", "worker", "embedded", "terminal", "runtime", "anthropic", "client"},
    "heritage.py": {"activities", "workflows", "worker", "embedded", "terminal", "runtime", "client", "temporalio"},
    "runtime.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "embedded.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "services.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "keeper.py": {"activities", "workflows", "client", "worker", "terminal", "store", "domain", "temporalio"},
    "restarts.py": {"os", "time", "datetime", "random", "asyncio", "services", "runtime", "embedded"},
    "starter.py": {"activities", "workflows", "worker"},
    "folder.py": {"activities", "workflows", "client", "worker", "temporalio"},
    "versioning.py": {"activities", "client", "runtime", "worker"},
    "edition.py": {"activities", "workflows", "client", "worker", "terminal", "store", "temporalio"},
    "server_version.py": {"activities", "workflows", "client", "worker", "terminal", "store", "temporalio"},
    "deployments.py": {"activities", "workflows", "client", "worker", "terminal", "store", "embedded"},
    "audit_trail.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "audits.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "untold.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "catalog.py": {"activities", "worker", "embedded", "terminal", "runtime", "client"},
    "attributes.py": {"activities", "workflows", "client", "worker", "terminal", "store", "runtime", "temporalio"},
    "footprint.py": {"activities", "workflows", "client", "worker", "terminal", "store", "runtime", "temporalio"},
    "pollers.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "payloads.py": {"activities", "workflows", "client", "worker", "runtime"},
    "prices.py": {
        "activities",
        "workflows",
        "client",
        "worker",
        "runtime",
        "terminal",
        "store",
        "temporalio",
        "httpx2",
    },
    "experience.py": {"activities", "workflows", "client", "worker", "runtime", "terminal", "temporalio"},
    "health.py": {"activities", "workflows", "client", "worker", "terminal", "store", "temporalio"},
}


@pytest.mark.parametrize("module", NEVER)
def test_a_module_keeps_its_doors_shut(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert {name.partition(".")[0] for name in names} & NEVER[module] == set()


def test_activities_use_the_api_of_opentelemetry_alone() -> None:
    """Its SDK is loaded by who exports, when the environment asks for it: import-linter cannot tell the two apart."""
    for file in (ROOT / "activities").glob("*.py"):
        modules = {
            node.module or "" for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
        }
        assert {name for name in modules if name.startswith("opentelemetry")} <= {"opentelemetry"}, file


def test_one_file_knows_the_library_of_prices() -> None:
    """It loads it when a price is wanted: it is slow to load, and workflow code must never see it."""
    files = [*ROOT.glob("*.py"), *(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))]
    knowing = {file.name for file in files if "genai_prices" in file.read_text("utf-8")}

    assert knowing == {"prices.py"}


@pytest.mark.parametrize(
    "module", ["client", "terminal.commands", "terminal.starting", "terminal.looking", "terminal.doctor"]
)
def test_the_client_never_loads_the_sdk_of_the_provider(module: str) -> None:
    """Not even indirectly: it takes seconds, and a client has no business with it."""
    program = f"import sys, {module}; from runtime import leave; leave('anthropic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_help_loads_neither_temporal_nor_the_provider() -> None:
    heavy = ("temporalio", "anthropic", "yaml", "genai_prices")
    program = f"import sys, terminal.commands; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"
