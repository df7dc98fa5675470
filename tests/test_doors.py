"""The doors of the single modules; those of the packages are checked by import-linter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

NEVER = {
    "store.py": {"activities", "workflows", "client", "worker", "runtime", "embedded", "terminal", "temporalio"},
    "client.py": {"activities", "worker", "embedded", "terminal", "runtime", "anthropic"},
    "reader.py": {"activities", "worker", "embedded", "terminal", "runtime", "anthropic", "client"},
    "runtime.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "embedded.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "services.py": {"activities", "workflows", "client", "worker", "terminal", "store"},
    "starter.py": {"activities", "workflows", "worker"},
    "folder.py": {"activities", "workflows", "client", "worker", "temporalio"},
    "versioning.py": {"activities", "client", "runtime", "worker"},
    "payloads.py": {"activities", "workflows", "client", "worker", "runtime"},
}


@pytest.mark.parametrize("module", NEVER)
def test_a_module_keeps_its_doors_shut(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert {name.partition(".")[0] for name in names} & NEVER[module] == set()


@pytest.mark.parametrize("module", ["client", "terminal.commands", "terminal.running"])
def test_the_client_never_loads_the_sdk_of_the_provider(module: str) -> None:
    """Not even indirectly: it takes seconds, and a client has no business with it."""
    program = f"import sys, {module}; from runtime import leave; leave('anthropic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_help_loads_neither_temporal_nor_the_provider() -> None:
    heavy = ("temporalio", "anthropic", "yaml")
    program = f"import sys, terminal.commands; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"
