"""The table, and docs/proof.md with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from proof.faults import KINDS
from proof.rounds import Tally
from proof.stall import STALL
from runtime import ROOT

PAGE = ROOT / "docs" / "proof.md"

BEGIN, END = "<!-- what was seen -->", "<!-- until here -->"
"""What stands between them on the page is written by the proof; all else by people."""

COLUMNS = {
    "faults": "faults",
    "runs": "runs",
    "tasks": "tasks",
    "paid calls": "paid",
    "repeated calls": "repeated",
    "violations": "violations",
}

WHAT = {label: kind.what for label, kind in KINDS.items()} | {
    STALL: "the worker gone for two and a half minutes: readers are told (V9)"
}


def table(tallies: Mapping[str, Tally]) -> str:
    """What came of the proof, a line for each kind of fault."""
    rows = [["fault", "", *COLUMNS], ["---", "---", *("---:" for _ in COLUMNS)]]
    for label, tally in tallies.items():
        what = f"not done: {tally.skipped}" if tally.skipped else WHAT.get(label, "")
        rows.append([f"`{label}`", what, *_figures(tally)])
    whole = Tally()
    for tally in tallies.values():
        whole.add(Tally(tally.counts, tally.violations))
    rows.append(["together", f"{whole.counts['kills']} kills among them", *_figures(whole)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write_page(tallies: Mapping[str, Tally], *, seed: int, took: timedelta) -> None:
    """Put the table into the page, with the day and the seed."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    minutes = took.total_seconds() / 60
    missed = sum(tally.counts["missed"] for tally in tallies.values())
    told = f"Seen on {datetime.now(UTC):%Y-%m-%d} with `--seed {seed}`, in {minutes:.0f} minutes."
    if missed:
        told += f" {missed} points were not reached: those runs had fewer events than the rehearsal."
    PAGE.write_text(f"{before}{BEGIN}\n{told}\n\n{table(tallies)}\n{END}{after}", "utf-8")


def _figures(tally: Tally) -> list[str]:
    counts = tally.counts + Counter(violations=len(tally.violations))
    return [f"{counts[name]:,}" for name in COLUMNS.values()]
