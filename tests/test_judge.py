"""The judge of the crash proof: it finds what is broken, says which invariant, and leaves what is well in peace."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOON = 1_800_000_000.0
RUN = "small-1-abcd"
OUTPUTS = {"a": b"What a says.", "b": b"What b says.", "c": b"What c says."}
AGAIN = "python -m proof --seed 3 --fault kill-worker --at run:7"

Json = dict[str, Any]


def ref(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Evidence:
    """What a run of a small plan leaves: `c` needs `a` and `b`, two at once, and the worker was killed once.

    The call of `a` was under way then, and was made again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store"
        self.tasks: list[Json] = [
            {"id": "a", "needs": [], "quorum": None},
            {"id": "b", "needs": [], "quorum": None},
            {
                "id": "c",
                "needs": [{"task": "a", "policy": "require"}, {"task": "b", "policy": "optional", "form": "summary"}],
                "quorum": 1,
            },
        ]
        self.budget: str | None = "1"
        self.outputs = dict(OUTPUTS)
        self.calls: list[Json] = [
            self.call("a", 1.0, 2.0, left=True),
            self.call("b", 1.0, 1.5),
            self.call("a", 12.0, 12.5),
            self.call("c", 14.0, 14.5, "a", "b"),
        ]
        self.events: list[tuple[float, str, str | None, Json]] = [
            (0.0, "run.started", None, {}),
            (0.0, "task.started", "a", {}),
            (0.0, "task.started", "b", {}),
            (1.6, "task.completed", "b", self.done("b")),
            (12.6, "task.completed", "a", self.done("a")),
            (13.0, "task.started", "c", {}),
            (14.6, "task.completed", "c", self.done("c")),
            (14.6, "run.completed", None, {"status": "COMPLETED"}),
        ]
        self.kept = {"a": 12.51, "b": 1.51, "c": 14.51}
        self.end: Json | None = {"status": "COMPLETED"}
        self.closed: str | None = "COMPLETED"
        self.faults: list[Json] = [
            {"kind": "kill-worker", "began": NOON + 1.9, "over": NOON + 1.95, "loses_calls": True}
        ]
        self.looks: list[Json] = [{"run": RUN, "at": NOON + 10, "said": "RUNNING"}]
        self.least = 3
        self.spoil_trail: Callable[[list[bytes]], None] = lambda _: None
        self.spoil_head: Json = {}

    def call(self, task: str, started: float, ended: float, *given: str, left: bool = False) -> Json:
        return {
            "user": hashlib.sha256(RUN.encode()).hexdigest()[:32],
            "task": task,
            "started": NOON + started,
            "ended": NOON + ended,
            "status": 200,
            "fault": None,
            "model": "claude-haiku-4-5",
            "billed": {"input": 100, "output": 0 if left else 20, "cache_read": 0, "cache_write": 0},
            "documents": [hashlib.sha256(OUTPUTS[name]).hexdigest() for name in given],
        }

    def done(self, task: str) -> Json:
        return {"status": "SUCCEEDED", "output_ref": ref(OUTPUTS[task]), "summary_ref": ref(OUTPUTS[task])}

    def write(self) -> Path:
        """Everything as files; the note of what was done."""
        runs = self.store / "runs" / RUN
        (runs / "events").mkdir(parents=True)
        plan = {"tasks": self.tasks, "max_concurrency": 2, "budget": self.budget}
        content = json.dumps(plan).encode()
        self._artifact(ref(content), content)
        for task, text in self.outputs.items():
            self._artifact(ref(OUTPUTS[task]), text)
        (runs / "manifest.json").write_text(json.dumps({"plan_ref": ref(content)}), "utf-8")
        if self.end:
            (runs / "end.json").write_text(json.dumps(self.end), "utf-8")
        events = [*self.events[:3], *map(self._told, self.calls), *self.events[3:]]
        lines = [self._line(number, *event) for number, event in enumerate(events, 1)]
        (runs / "events" / "0000000001.jsonl").write_text("".join(lines[:4]), "utf-8")
        (runs / "events" / "0000000005.jsonl").write_text("".join(lines[4:]), "utf-8")
        trail, head = self._trail(events)
        self.spoil_trail(trail)
        (self.store / "audit" / RUN).mkdir(parents=True)
        (self.store / "audit" / RUN / "0000000001.jsonl").write_bytes(b"".join(line + b"\n" for line in trail))
        for task, at in self.kept.items():
            entry = self.store / "ledger" / RUN / hashlib.sha256(task.encode()).hexdigest()[:32] / "1" / "x"
            entry.mkdir(parents=True)
            (entry / "completion.json").write_text("{}", "utf-8")
            os.utime(entry / "completion.json", (NOON + at, NOON + at))
        (self.folder / "home").mkdir()
        (self.folder / "provider").mkdir()
        bill = self.folder / "provider" / "simulator.jsonl"
        bill.write_text("".join(json.dumps(call) + "\n" for call in self.calls), "utf-8")
        note = {
            "home": str(self.folder / "home"),
            "store": str(self.store),
            "bill": str(bill),
            "runs": [{"run": RUN, "again": AGAIN, "closed": self.closed, "head": head | self.spoil_head}],
            "faults": self.faults,
            "looks": self.looks,
            "canaries": [
                {"word": "canary-prompt", "in_artifacts": True},
                {"word": "canary-key", "in_artifacts": False},
            ],
            "least": self.least,
        }
        (self.folder / "note.json").write_text(json.dumps(note), "utf-8")
        return self.folder / "note.json"

    def _artifact(self, name: str, content: bytes) -> None:
        digest = name.removeprefix("sha256:")
        file = self.store / "artifacts" / digest[:2] / digest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def _told(self, call: Json) -> tuple[float, str, str | None, Json]:
        """The record of a call: the first one for `a` was lost with the worker."""
        lost = call["billed"]["output"] == 0
        data = {"step": 1, "prompt": call["task"], "request": self.calls.index(call), "tokens": call["billed"]}
        return (
            0.1,
            "call.made",
            call["task"],
            data | ({"answer": None, "error": "WorkerLost"} if lost else {"answer": "x"}),
        )

    @staticmethod
    def _trail(events: list[tuple[float, str, str | None, Json]]) -> tuple[list[bytes], Json]:
        lines, hash = [], hashlib.sha256(RUN.encode()).hexdigest()
        for number, (at, type, task, data) in enumerate(events, 1):
            time = datetime.fromtimestamp(NOON + at, UTC).isoformat()
            body = json.dumps({"n": number, "time": time, "type": type, "task": task, "data": data}).encode()
            hash = hashlib.sha256(hash.encode() + body).hexdigest()
            lines.append(body[:-1] + f',"hash":"{hash}"}}'.encode())
        return lines, {"number": len(lines), "hash": hash}

    @staticmethod
    def _line(number: int, at: float, type: str, task: str | None, data: Json) -> str:
        time = datetime.fromtimestamp(NOON + at, UTC).isoformat()
        subject = RUN if task is None else f"{RUN}/{task}"
        event = {"id": f"{RUN}/{number}", "type": type, "subject": subject, "time": time, "data": data}
        return json.dumps(event) + "\n"


def judge(note: Path) -> tuple[int, Json]:
    done = subprocess.run(
        [sys.executable, "-m", "proof.check", str(note)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    verdict: Json = json.loads(done.stdout)
    return done.returncode, verdict


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path)


def test_a_run_that_survived_a_kill_is_well(evidence: Evidence) -> None:
    code, verdict = judge(evidence.write())

    assert verdict["violations"] == []
    assert code == 0
    assert verdict["counted"] == {"runs": 1, "tasks": 3, "succeeded": 3, "paid": 4, "repeated": 1, "faults": 1}


def never_ends(evidence: Evidence) -> None:
    del evidence.events[-1]


def is_not_closed(evidence: Evidence) -> None:
    evidence.closed = None


def has_no_end(evidence: Evidence) -> None:
    evidence.end = None


def ends_in_two_ways(evidence: Evidence) -> None:
    evidence.end = {"status": "PARTIAL"}


def goes_on_after_its_end(evidence: Evidence) -> None:
    evidence.events.append((15.0, "run.waiting", None, {}))


def is_lost(evidence: Evidence) -> None:
    evidence.tasks, evidence.events, evidence.calls, evidence.looks, evidence.least = [], [], [], [], 0


def tells_an_end_twice(evidence: Evidence) -> None:
    evidence.events.insert(5, (12.6, "task.completed", "a", evidence.done("a")))


def tells_no_end(evidence: Evidence) -> None:
    evidence.tasks.append({"id": "d", "needs": [], "quorum": None})


def has_a_gap(evidence: Evidence) -> None:
    evidence._line = lambda number, *rest: Evidence._line(number + (number > 3), *rest)  # type: ignore[method-assign]


def starts_too_early(evidence: Evidence) -> None:
    evidence.events.insert(3, evidence.events.pop(5))


def is_called_for_too_early(evidence: Evidence) -> None:
    evidence.calls[3] |= {"started": NOON + 0.5, "ended": NOON + 0.9}


def starts_against_its_policy(evidence: Evidence) -> None:
    evidence.events[4] = (12.6, "task.failed", "a", {"status": "FAILED"})
    evidence.calls[3] = evidence.call("c", 14.0, 14.5, "b")
    evidence.least = 2


def starts_short_of_its_quorum(evidence: Evidence) -> None:
    evidence.events[3] = (1.6, "task.failed", "b", {"status": "FAILED"})
    evidence.calls[3] = evidence.call("c", 14.0, 14.5, "a")
    evidence.least = 2


def takes_too_many_places(evidence: Evidence) -> None:
    evidence.tasks += [{"id": "d", "needs": [], "quorum": None}]
    evidence.outputs["d"] = OUTPUTS["d"] = b"What d says."
    evidence.events[3:3] = [(0.1, "task.started", "d", {}), (1.5, "task.completed", "d", evidence.done("d"))]
    evidence.calls.append(evidence.call("d", 1.1, 1.4))


def pays_again_for_what_was_kept(evidence: Evidence) -> None:
    evidence.calls.append(evidence.call("b", 5.0, 5.5))


def pays_again_without_a_fault(evidence: Evidence) -> None:
    evidence.faults = []


def pays_again_though_its_worker_lived(evidence: Evidence) -> None:
    evidence.faults[0] |= {"kind": "kill-server", "loses_calls": False}


def overspends(evidence: Evidence) -> None:
    evidence.budget = "0.0006"  # 400 tokens in and 60 out are 0.0007


def changes_what_is_stored(evidence: Evidence) -> None:
    evidence.outputs["a"] = b"What a never said."


def loses_what_was_stored(evidence: Evidence) -> None:
    del evidence.outputs["c"]


def hands_on_something_else(evidence: Evidence) -> None:
    evidence.calls[3]["documents"][0] = hashlib.sha256(b"What a said the first time.").hexdigest()


def hands_on_nothing(evidence: Evidence) -> None:
    evidence.calls[3]["documents"] = []


def tells_nobody_of_a_stall(evidence: Evidence) -> None:
    evidence.calls[2] |= {"started": NOON + 200.0, "ended": NOON + 200.5}
    evidence.calls[3] |= {"started": NOON + 202.0, "ended": NOON + 202.5}
    evidence.events[4:] = [(200 + at, *rest) for at, *rest in evidence.events[4:]]  # type: ignore[misc]
    evidence.looks.append({"run": RUN, "at": NOON + 180.0, "said": "RUNNING"})


def changes_a_record(evidence: Evidence) -> None:
    def change(trail: list[bytes]) -> None:
        trail[5] = trail[5].replace(b"call.made", b"call.mode")

    evidence.spoil_trail = change


def loses_a_record(evidence: Evidence) -> None:
    def lose(trail: list[bytes]) -> None:
        del trail[5]

    evidence.spoil_trail = lose


def loses_its_tail(evidence: Evidence) -> None:
    def cut(trail: list[bytes]) -> None:
        del trail[-1]

    evidence.spoil_trail = cut


def has_another_head(evidence: Evidence) -> None:
    evidence.spoil_head = {"hash": "0" * 64}


def tells_of_a_call_twice(evidence: Evidence) -> None:
    evidence.events.insert(3, evidence._told(evidence.calls[1]))


def tells_of_no_call(evidence: Evidence) -> None:
    told = [evidence._told(call) for call in evidence.calls if call["task"] != "b"]
    evidence._told = lambda call: (0.1, "task.ready", call["task"], {})  # type: ignore[method-assign]
    evidence.events[3:3] = told


def tells_of_an_answer_that_never_came(evidence: Evidence) -> None:
    late = evidence.call("b", 5.0, 5.5)
    evidence.calls.append(late)
    evidence.events.insert(3, evidence._told(late))
    evidence.calls.remove(late)


def tells_the_key(evidence: Evidence) -> None:
    evidence.outputs["c"] = OUTPUTS["c"] = b"canary-key"
    evidence.events[6] = (14.6, "task.completed", "c", evidence.done("c"))


def tells_a_prompt(evidence: Evidence) -> None:
    evidence.events[0] = (0.0, "run.started", None, {"why": "canary-prompt"})


def does_too_little(evidence: Evidence) -> None:
    evidence.least = 4


def does_nothing_after_the_fault(evidence: Evidence) -> None:
    evidence.faults.insert(0, {"kind": "reset", "began": NOON + 99, "over": NOON + 99, "loses_calls": False})
    evidence.faults[1] |= {"began": NOON + 99, "over": NOON + 99}
    del evidence.calls[0]


BROKEN: list[tuple[str, Callable[[Evidence], None]]] = [
    ("V1", never_ends),
    ("V1", is_not_closed),
    ("V1", has_no_end),
    ("V1", ends_in_two_ways),
    ("V1", goes_on_after_its_end),
    ("V1", is_lost),
    ("V2", tells_an_end_twice),
    ("V2", tells_no_end),
    ("V2", has_a_gap),
    ("V3", starts_too_early),
    ("V3", is_called_for_too_early),
    ("V3", starts_against_its_policy),
    ("V3", starts_short_of_its_quorum),
    ("V4", takes_too_many_places),
    ("V5", pays_again_for_what_was_kept),
    ("V5", pays_again_without_a_fault),
    ("V5", pays_again_though_its_worker_lived),
    ("V6", overspends),
    ("V7", changes_what_is_stored),
    ("V7", loses_what_was_stored),
    ("V7", hands_on_something_else),
    ("V7", hands_on_nothing),
    ("V8", changes_a_record),
    ("V8", loses_a_record),
    ("V8", loses_its_tail),
    ("V8", has_another_head),
    ("V8", tells_of_a_call_twice),
    ("V8", tells_of_no_call),
    ("V8", tells_of_an_answer_that_never_came),
    ("V9", tells_nobody_of_a_stall),
    ("V10", tells_the_key),
    ("V10", tells_a_prompt),
    ("V11", does_too_little),
    ("V11", does_nothing_after_the_fault),
]


@pytest.mark.parametrize(("invariant", "spoil"), BROKEN, ids=[spoil.__name__ for _, spoil in BROKEN])
def test_a_broken_invariant_is_found(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch, invariant: str, spoil: Callable[[Evidence], None]
) -> None:
    """And no other is blamed for it; who reads it is told how to see it again."""
    monkeypatch.setattr(sys.modules[__name__], "OUTPUTS", dict(OUTPUTS))
    spoil(evidence)

    code, verdict = judge(evidence.write())

    assert code == 1
    assert {found["invariant"] for found in verdict["violations"]} == {invariant}
    for found in verdict["violations"]:
        assert (found["run"], found["again"]) in {(RUN, AGAIN), (None, None)}


def test_a_stall_that_was_told_is_well(evidence: Evidence) -> None:
    tells_nobody_of_a_stall(evidence)
    evidence.looks[-1]["said"] = "STALLED"
    evidence.faults[0] |= {"over": NOON + 1.95}

    assert judge(evidence.write())[1]["violations"] == []


def test_a_provider_that_breaks_off_is_no_fault_of_ours(evidence: Evidence) -> None:
    """What it charged for is paid, and the call is made again."""
    evidence.calls[1] |= {"fault": "reset_mid_stream"}
    evidence.calls.append(evidence.call("b", 1.6, 1.7))

    assert judge(evidence.write())[1]["violations"] == []
