"""A home that is up, driven by the command line as a person drives it, and its simulator."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from embedded import simulator_url
from runtime import load_settings

ROOT = Path(__file__).resolve().parent.parent
STARTER = [sys.executable, str(ROOT / "starter.py")]


class Home:
    """One home that is up, and its simulator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        assert self("up").returncode == 0
        return self

    def __exit__(self, *error: object) -> None:
        assert self("down").returncode == 0

    def __call__(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*STARTER, "--home", str(self.folder), *words]
        return subprocess.run(command, input=input, capture_output=True, text=True, cwd=ROOT, timeout=200, check=False)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on; its stderr can be read line by line."""
        command = [*STARTER, "--home", str(self.folder), *words]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )

    @property
    def url(self) -> str:
        url = simulator_url(load_settings(self.folder))
        assert url is not None
        return url

    def script(self, *rules: dict[str, Any], **config: Any) -> None:
        body = json.dumps({"rules": list(rules), "config": config}).encode()
        request = urllib.request.Request(f"{self.url}/script", data=body, method="POST")
        urllib.request.urlopen(request, timeout=60).close()

    def calls(self, run: str | None = None) -> list[dict[str, Any]]:
        """The simulator's bill: of a run, or of all."""
        with urllib.request.urlopen(f"{self.url}/log", timeout=60) as reply:
            found: list[dict[str, Any]] = json.load(reply)
        user = run and hashlib.sha256(run.encode()).hexdigest()[:32]  # what the door tells the provider of a run
        return [call for call in found if user in (None, call["user"])]
