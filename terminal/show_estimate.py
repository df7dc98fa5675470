"""An estimate as a person reads it, and as a script does."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from domain.consent import Consent, dollars
from domain.estimate import Estimate, TaskEstimate
from domain.forecast import Spread
from domain.prices import NOTHING, Usd
from runtime import Mode
from terminal.signs import mode_of
from terminal.text import counted, plain, seconds

LISTED = 50
"""Tasks that have a line each; of a larger plan those that will likely cost most."""


def document_of(name: str, estimate: Estimate, consent: Consent, mode: Mode, live: Estimate | None) -> dict[str, Any]:
    """The document of `estimate --json`."""
    document = estimate.model_dump(mode="json")
    return {
        "schema": "nightcrew.estimate/1",
        "name": name,
        "simulated": mode is Mode.SIMULATED,
        **document,
        "live_usd": live.usd.model_dump(mode="json") if live is not None and live.usd is not None else None,
        "decision": consent.decision,
        "why": consent.why,
    }


def show_estimate(console: Console, estimate: Estimate, consent: Consent, mode: Mode, live: Estimate | None) -> None:
    """A line for each task, then all of it, then what is decided."""
    shown = _dearest(estimate)
    console.print(_table(shown))
    if len(shown) < len(estimate.tasks):
        console.print(Text(f"and {counted(len(estimate.tasks) - len(shown), 'cheaper task')}; --json shows all", "dim"))
    console.print()
    console.print(Text.assemble(mode_of(simulated=mode is Mode.SIMULATED, provider=None), f" {in_all(estimate)}"))
    if live is not None and live.usd is not None:
        console.print(Text(f"Live, where answers are longer: {_range(live.usd)}.", "dim"))
    console.print(Text(_basis(estimate), "dim"))
    console.print(Text(f"{_decided(consent)}: {consent.why}."))


def estimate_line(estimate: Estimate, mode: Mode) -> str:
    """The estimate in one line, as it stands above a run."""
    condition = ", with simulated answers" if mode is Mode.SIMULATED else ""
    return f"Estimate{condition}: {in_all(estimate)}"


def in_all(estimate: Estimate) -> str:
    """What the whole plan will cost, use and take."""
    money = _range(estimate.usd) if estimate.usd is not None else f"no price for {', '.join(estimate.unpriced)}"
    tokens = estimate.tokens
    return (
        f"{money}; about {tokens.input.likely:,} tokens in and {tokens.output.likely:,} out, "
        f"in about {seconds(estimate.seconds.likely)}"
    )


def _range(usd: Spread[Usd]) -> str:
    return f"likely {dollars(usd.likely)}, at least {dollars(usd.low)}, at most {dollars(usd.high)}"


def _table(shown: list[TaskEstimate]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", overflow="fold")
    table.add_column("agent", no_wrap=True)
    for heading in ("in", "out", "low", "likely", "high", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for task in shown:
        usd = task.usd
        money = [dollars(usd.low), dollars(usd.likely), dollars(usd.high)] if usd is not None else ["", "no price", ""]
        tokens = f"{task.tokens.input.likely:,}", f"{task.tokens.output.likely:,}"
        table.add_row(Text(plain(task.id)), Text(task.agent, "dim"), *tokens, *money, seconds(task.seconds.likely))
    return table


def _dearest(estimate: Estimate) -> list[TaskEstimate]:
    """The tasks that have a line, in plan order."""
    tasks = estimate.tasks
    likely = [task.usd.likely if task.usd is not None else NOTHING for task in tasks]
    by_cost = sorted(range(len(tasks)), key=lambda place: -likely[place])
    return [tasks[place] for place in sorted(by_cost[:LISTED])]


def _basis(estimate: Estimate) -> str:
    """What the likely figures rest on."""
    learned = sum(task.answers > 0 for task in estimate.tasks)
    source = f"Prices: {estimate.price_source}. " if estimate.price_source else ""
    if not learned:
        return f"{source}Answers are guessed: no agent of this plan has been at work here yet."
    return f"{source}For {learned} of {counted(len(estimate.tasks), 'task')}, answers are what the agent gave before."


def _decided(consent: Consent) -> str:
    return {"run": "It would start", "ask": "You would be asked", "refuse": "It would be refused"}[consent.decision]
