"""The pictures of the README and of docs/failures.md, taken from real runs: `.venv/bin/python docs/pictures.py`."""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from client import RunClient  # noqa: E402
from domain.models import RunStatus, TaskStatus  # noqa: E402
from domain.picture import Picture  # noqa: E402
from embedded import simulator_url  # noqa: E402
from runtime import Mode, leave, queue_of  # noqa: E402
from terminal.estimating import offer_for  # noqa: E402
from terminal.live import live_view  # noqa: E402
from terminal.scripts import follow_script  # noqa: E402
from terminal.session import Session  # noqa: E402
from terminal.show import show_report  # noqa: E402
from terminal.show_estimate import estimate_line  # noqa: E402
from terminal.show_task import show_task  # noqa: E402
from terminal.starting import Order  # noqa: E402

PLAN = "examples/competitor-brief.yaml"
FAILURES, SCRIPT = "examples/failures.yaml", "examples/failures.script.yaml"
WIDE = 118
TOLD = "Missing inputs"
"""Where the part of a brief begins that says what is missing."""

Moment = Callable[[Picture], bool]


def main() -> None:
    """Run each example once, and keep moments of it."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(take(Session(Path(folder))))


async def take(session: Session) -> None:
    """A run that goes well, then one in which nearly everything goes wrong."""
    async with session.up(Mode.SIMULATED):
        client = await session.client()
        await take_the_run(session, client)
        await follow_script(simulator_url(session.settings), "failures", (ROOT / SCRIPT).read_text("utf-8"))
        await take_the_failures(session, client)


async def take_the_run(session: Session, client: RunClient) -> None:
    """What it will likely cost, the run in the middle, and its report."""
    console = screen(f"run {PLAN}")
    run = await submit(session, client, PLAN, "competitor-brief-1116-2104", console)
    taken = False
    async for picture in client.watch(run):
        if not taken and in_the_middle(picture):
            taken = True
            console.print(live_view(picture))  # now: the picture goes on
        if picture.ended:
            await client.until_closed(run, timedelta(seconds=15))
            show_report(console, await client.report(picture), hints=[])
    keep(console, "run")


async def take_the_failures(session: Session, client: RunClient) -> None:
    """When nothing but the wall and a person is awaited; what a task was told; and the report after the approval."""
    console = screen("status failures", width=WIDE)
    run = await submit(session, client, FAILURES, "failures")
    picture = await until(client, run, only_others_are_awaited)
    report = await client.report(picture)
    show_report(console, report, hints=[])

    console.print(Text("\n$ ./starter.py status failures risks\n", "bold"))
    told = io.StringIO()
    entry = next(task for task in report.tasks if task.id == "risks")
    brief = await client.brief(picture, "risks")
    show_task(
        Console(width=console.width, file=told),
        entry,
        picture.planned["risks"],
        picture.inputs("risks"),
        brief,
    )
    facts, _, missing = told.getvalue().partition("\nbrief\n")
    console.print(Text(f"{facts}[...]\n{TOLD}{missing.partition(TOLD)[2]}".rstrip()))

    keep(console, "failures")

    words = ("retry failures prices", "approve failures letter", "result failures --wait")
    console = screen(" && ./starter.py ".join(words), width=WIDE)
    await client.retry(run, ("prices",), by="someone", note=None)
    await client.approve(run, ("letter",), by="someone", note=None)
    picture = await until(client, run, lambda picture: picture.ended)
    await client.until_closed(run, timedelta(seconds=15))
    show_report(console, await client.report(picture), hints=[])
    keep(console, "failures-report")


def screen(words: str, *, width: int = 100) -> Console:
    """A terminal on which a command was typed."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ ./starter.py {words}", "bold"))
    return console


def keep(console: Console, name: str) -> None:
    """Write what stands on a terminal as a picture."""
    console.save_svg(str(ROOT / "docs" / "pictures" / f"{name}.svg"), title="nightcrew")


async def submit(session: Session, client: RunClient, plan: str, id: str, console: Console | None = None) -> str:
    """Start a simulated run of an example as `run` does, and say the same about it before."""
    mode, settings = Mode.SIMULATED, session.settings
    order = Order.read(
        str(ROOT / plan),
        params={},
        agents=None,
        max_concurrency=None,
        pace=None,
        id=id,
        simulate=True,
        script=None,
        settings=settings,
    )
    offer = await offer_for(settings, order.planned, mode, budget=order.budget)
    if console is not None:
        console.print(Text(f"{estimate_line(offer.estimate, mode)}\n"))
    return await client.submit(order.planned, id=id, simulated=True, queue=queue_of(mode), estimate=offer.estimate)


async def until(client: RunClient, run: str, true: Moment) -> Picture:
    """The first picture of a run of which something is true."""
    async for picture in client.watch(run):
        if true(picture):
            return picture
    raise RuntimeError(f"{run} came to its end before")


def only_others_are_awaited(picture: Picture) -> bool:
    """A wall and a person: nothing is at work."""
    return picture.status is RunStatus.WAITING and len([*picture.of(TaskStatus.WAITING)]) == 2


def in_the_middle(picture: Picture) -> bool:
    """Some tasks have ended, some are at work, and of one of them its worker has told."""
    states = {task.status for task in picture.tasks.values()}
    told = any(task.live is not None for task in picture.tasks.values())
    return told and {TaskStatus.SUCCEEDED, TaskStatus.RUNNING, TaskStatus.PENDING} <= states


if __name__ == "__main__":
    main()
    leave(0)
