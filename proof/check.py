"""`python -m proof.check NOTE`: judge what is left of the runs that a note names.

A program of its own: it shares no code with what it judges, and reads plain files alone. It prints one JSON object with
every violation and what was counted; the exit code is 1 when there is a violation.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from proof.evidence import Case, read_case
from proof.invariants import violations


def counted(case: Case) -> dict[str, int]:
    """What was seen, in figures. A call is repeated when its task had been paid for before."""
    paid = [[call for call in run.calls_of(task) if call.paid] for run in case.runs for task in run.tasks]
    return {
        "runs": len(case.runs),
        "tasks": sum(len(run.tasks) for run in case.runs),
        "succeeded": sum(len(run.told("task.completed")) for run in case.runs),
        "paid": sum(len(calls) for calls in paid),
        "repeated": sum(max(0, len(calls) - 1) for calls in paid),
        "faults": len(case.faults),
    }


def main() -> int:
    """Judge; the exit code."""
    case = read_case(Path(sys.argv[1]))
    found = violations(case)
    again = {run.id: run.again for run in case.runs}
    told = [{**asdict(violation), "again": again.get(violation.run or "")} for violation in found]
    sys.stdout.write(json.dumps({"violations": told, "counted": counted(case)}, indent=2) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
