"""Words that must stay where they were put: a plan, files and a script for the simulator that are full of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CANARIES = {
    place: f"canary{place}zq7"
    for place in ("prompt", "file", "param", "default", "answer", "cut", "declined", "error", "event", "key", "header")
}

PLAN = f"""
name: canaries
max_concurrency: 4
params: {{word: {{default: {CANARIES["default"]}}}}}
defaults: {{agent: writer, timeout: 20s}}
tasks:
  - {{id: flaky, prompt: "{CANARIES["prompt"]} {{{{ params.word }}}}", files: [notes.txt]}}
  - {{id: walled, prompt: "{CANARIES["prompt"]}"}}
  - {{id: declined, prompt: "{CANARIES["prompt"]}"}}
  - {{id: cut, prompt: "{CANARIES["prompt"]}"}}
  - {{id: garbled, prompt: "{CANARIES["prompt"]}", attempts: 1}}
  - {{id: last, prompt: "{CANARIES["prompt"]} {{{{ flaky }}}}", needs: [flaky]}}
"""

RULES: list[dict[str, Any]] = [
    {"when": {"task": "flaky", "nth": 1}, "then": {"fault": "overloaded", "message": CANARIES["error"]}},
    {
        "when": {"task": "flaky", "nth": 2},
        "then": {"fault": "error_event", "error_type": "api_error", "message": CANARIES["event"]},
    },
    {
        "when": {"task": "walled", "nth": 1},
        "then": {"fault": "rate_limit", "message": CANARIES["error"], "retry_after": 1},
    },
    {"when": {"task": "declined"}, "then": {"fault": "invalid_request", "message": CANARIES["declined"]}},
    {"when": {"task": "cut"}, "then": {"answer": CANARIES["cut"], "stop_reason": "max_tokens"}},
    {"when": {"task": "garbled"}, "then": {"fault": "garbage_json"}},
    {"then": {"answer": f"An answer with {CANARIES['answer']} in it."}},
]


def write_plan(folder: Path) -> Path:
    """The plan as a file, with the file that it reads beside it."""
    (folder / "notes.txt").write_text(CANARIES["file"], "utf-8")
    file = folder / "canaries.yaml"
    file.write_text(PLAN, "utf-8")
    return file


def found_in(text: bytes) -> list[str]:
    """The places whose words are in a text."""
    return [place for place, word in CANARIES.items() if word.encode() in text]
