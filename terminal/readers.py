"""`events readers` and `events --forget`: who reads the event log under a name, and how far each has come."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from domain.events import timestamp
from domain.offsets import ReaderPlace
from terminal.outcome import Exit, Refusal, print_json
from terminal.session import Session
from terminal.text import counted


async def show(session: Session, *, as_json: bool) -> Exit:
    """Every reader with a name."""
    places = await (await session.reader(online=False)).readers()
    if as_json:
        print_json({"schema": "nightcrew.readers/1", "readers": [_document(place) for place in places]})
        return Exit.DONE
    if not places:
        sys.stdout.write(f"Nobody reads under a name. {session.starter} events --all --reader NAME begins.\n")
        return Exit.DONE
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in "reader", "has read", "of", "kept at":
        table.add_column(heading)
    for place in places:
        local = place.saved.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(place.name, counted(_events(place), "event"), counted(len(place.runs), "run"), local)
    Console().print(table)
    return Exit.DONE


async def forget(session: Session, name: str, *, as_json: bool) -> Exit:
    """Forget how far a reader has come."""
    if not await (await session.reader(online=False)).forget_reader(name):
        message = f"There is no reader {name!r} here. {session.starter} events readers shows those that there are."
        raise Refusal(message, code="unknown_reader", exit=Exit.WRONG)
    if as_json:
        print_json({"schema": "nightcrew.forgotten/1", "reader": name})
    else:
        sys.stdout.write(f"{name} is forgotten. Who reads under this name again begins at the start.\n")
    return Exit.DONE


def _events(place: ReaderPlace) -> int:
    """Numbers have no gaps, so the last one of each run says how many there were."""
    return sum(mark.number for mark in place.runs.values())


def _document(place: ReaderPlace) -> dict[str, object]:
    runs = {run: mark.number for run, mark in place.runs.items()}
    return {"name": place.name, "saved": timestamp(place.saved), "events": _events(place), "runs": runs}
