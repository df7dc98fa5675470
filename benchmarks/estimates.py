"""What every example was likely to cost beside what it came to: the table of docs/money.md.

    .venv/bin/python benchmarks/estimates.py [EXAMPLE...]

Each runs on the simulator in a home of its own, in which no agent has been at work. It gets a script that makes answers
quick, in place of its own: every task is done, also one whose timeout is short. Questions to people are answered with
yes. Exits 1 when a cost was outside of low and high, or likely was off by more than 30 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from domain.consent import dollars  # noqa: E402

MOST_OFF = Decimal("0.3")
NOT_FINISHED = 8
QUICK = "config: {ttft: 0.1, tokens_per_second: 1000}\n"


class Row(NamedTuple):
    """An example, what was foreseen, and what came."""

    name: str
    tasks: int
    low: Decimal
    likely: Decimal
    high: Decimal
    actual: Decimal

    @property
    def off(self) -> Decimal:
        """How far the likely cost was from the actual one, as a part of that."""
        return (self.likely - self.actual) / self.actual

    @property
    def is_good(self) -> bool:
        """Whether the estimate was what we promise."""
        return self.low <= self.actual <= self.high and abs(self.off) <= MOST_OFF

    def __str__(self) -> str:
        money = " | ".join(dollars(amount) for amount in (self.low, self.likely, self.high, self.actual))
        return f"| `{self.name}` | {self.tasks} | {money} | {self.off:+.0%} |".replace("%", " %")


def starter(home: str, *words: str) -> subprocess.CompletedProcess[str]:
    """One command of the command line in a home."""
    command = [sys.executable, str(ROOT / "starter.py"), *words, "--home", home]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a command has said in JSON."""
    if not done.stdout:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(plan: Path) -> Row:
    """Run an example to its end."""
    with tempfile.TemporaryDirectory(prefix="nightcrew-") as folder:
        home, script = str(Path(folder) / "home"), Path(folder) / "quick.yaml"
        script.write_text(QUICK, "utf-8")
        try:
            foreseen = document(starter(home, "estimate", str(plan), "--json"))["usd"]
            starter(home, "submit", str(plan), "--script", str(script), "--id", "it")
            wait = ("result", "it", "--wait", "--timeout", "10s", "--json")
            while (ended := starter(home, *wait)).returncode == NOT_FINISHED:
                for found in document(starter(home, "status", "it", "--json"))["attention"]:
                    if found["kind"] == "approval":
                        starter(home, "approve", "it", found["task"])
            report = document(ended)
        finally:
            starter(home, "down")
    usd = {level: Decimal(foreseen[level]) for level in ("low", "likely", "high")}
    return Row(plan.stem, report["census"]["total"], **usd, actual=Decimal(report["cost"]["actual_usd"]))


def main() -> int:
    """Measure the examples that were named, or all; the exit code."""
    plans = sorted(each for each in (ROOT / "examples").glob("*.yaml") if not each.name.endswith(".script.yaml"))
    rows = []
    print("| example | tasks | low | likely | high | actual | likely is off by |\n|---|---|---|---|---|---|---|")
    for plan in plans:
        if not sys.argv[1:] or plan.stem in sys.argv[1:]:
            rows.append(measured(plan))
            print(rows[-1], flush=True)
    return 0 if all(row.is_good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
