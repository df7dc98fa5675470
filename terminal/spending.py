"""`costs`: what the runs of a home have cost, by run, plan, agent or day."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from catalog import run_list
from client import UnknownRun
from domain.consent import dollars
from domain.problems import did_you_mean
from domain.spending import WAYS, By, SpendingLine, spending_of, sum_of
from terminal.outcome import Exit, Refusal, print_json
from terminal.session import Session
from terminal.show_cost import spared_words
from terminal.text import counted, plain


async def costs(session: Session, *, by: str, since: datetime | None, as_json: bool) -> Exit:
    """All runs of the home, or those since a time, added up. Open ones count with what they have cost so far."""
    way = _way(by)
    try:
        reader = await session.reader()
        entries = await run_list(reader, since=None if since is None else datetime.now(UTC) - since)
    except UnknownRun:
        entries = []
    lines = spending_of(entries, way, _day)
    whole = sum_of(spending_of(entries, "run", _day))
    if as_json:
        shown = [line.model_dump(mode="json") for line in lines]
        print_json({"schema": "nightcrew.costs/1", "by": way, "lines": shown, "all": whole.model_dump(mode="json")})
    else:
        _show(lines, whole, way)
    return Exit.DONE


def _way(word: str) -> By:
    found = next((way for way in WAYS if way == word), None)
    if found is None:
        hint = did_you_mean(word, WAYS)
        message = f"--by {word!r} must be one of {', '.join(WAYS)}{f' ({hint})' if hint else ''}."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    return found


def _day(moment: datetime) -> str:
    """The day on this machine's calendar."""
    return f"{moment.astimezone():%Y-%m-%d}"


def _show(lines: list[SpendingLine], whole: SpendingLine, by: By) -> None:
    console = Console()
    if not lines:
        console.print("no runs", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=len(lines) > 1)
    table.add_column(by, "all", overflow="fold")
    for heading, value in _cells(whole).items():
        table.add_column(heading, value, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(Text(plain(line.name)), *_cells(line).values())
    console.print(table)
    for sentence in _sentences(whole):
        console.print(Text(sentence, "dim"))
    if whole.unsettled_usd:
        more = f"and up to {dollars(whole.unsettled_usd)} more, for attempts in vain that nobody told the cost of"
        console.print(Text(more, "dim"))
    if whole.unpriced:
        sys.stderr.write(
            f"The cost of {counted(whole.unpriced, 'run')} is not known: run before 0.5.0, or with a model that has "
            "no price.\n"
        )


def _sentences(whole: SpendingLine) -> Iterator[str]:
    """What attempts in vain cost and what was saved, of live runs and of simulated ones."""
    for kind, retries, savings in (
        ("paid", whole.retries_usd, whole.savings),
        ("simulated", whole.simulated_retries_usd, whole.simulated_savings),
    ):
        parts = [
            f"attempts in vain cost {dollars(retries)}" if retries else "",
            f"reused results saved {dollars(savings.reuse_usd)}" if savings.reuse_usd else "",
            spared_words(savings),
        ]
        if any(parts):
            yield f"{kind}: {', '.join(filter(None, parts))}"


def _cells(line: SpendingLine) -> dict[str, str]:
    return {
        "runs": f"{line.runs:,}",
        "tokens in": f"{line.tokens.input + line.tokens.cache_read + line.tokens.cache_write:,}",
        "out": f"{line.tokens.output:,}",
        "paid": dollars(line.usd) if line.usd else "",
        "simulated": dollars(line.simulated_usd) if line.simulated_usd else "",
    }
