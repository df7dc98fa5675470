"""The pictures of the README, taken from a real run: `.venv/bin/python docs/pictures.py`."""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console, RenderableType  # noqa: E402
from rich.text import Text  # noqa: E402

from domain.models import TaskStatus  # noqa: E402
from domain.report import Picture  # noqa: E402
from runtime import Mode, leave, queue_of  # noqa: E402
from terminal.plans import read_plan  # noqa: E402
from terminal.session import Session  # noqa: E402
from terminal.show import live_view, show_report  # noqa: E402

PLAN = "examples/competitor-brief.yaml"


def main() -> None:
    """Run the example once, and keep two moments of it."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(take(Session(Path(folder))))


async def take(session: Session) -> None:
    """The run in the middle, and its report."""
    planned = read_plan(str(ROOT / PLAN), params=[], agents=None, max_concurrency=None)
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ ./starter.py run {PLAN}\n", "bold"))
    async with session.up(Mode.SIMULATED):
        client = await session.client()
        id = "competitor-brief-1116-2104"
        run = await client.submit(planned, id=id, simulated=True, queue=queue_of(Mode.SIMULATED))
        middle: RenderableType | None = None
        async for picture in client.watch(run):
            if middle is None and in_the_middle(picture):
                middle = live_view(picture)
            if picture.ended:
                console.print(middle)
                await client.until_closed(run, timedelta(seconds=15))
                show_report(console, await client.report(picture), hints=[])
    console.save_svg(str(ROOT / "docs/pictures/run.svg"), title="nightcrew")


def in_the_middle(picture: Picture) -> bool:
    """Some tasks have ended, some are at work."""
    states = {task.status for task in picture.tasks.values()}
    return {TaskStatus.SUCCEEDED, TaskStatus.RUNNING, TaskStatus.PENDING} <= states


if __name__ == "__main__":
    main()
    leave(0)
