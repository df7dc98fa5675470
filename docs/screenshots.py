"""The pictures of web-ui.md and failures.md, from real runs in a real browser: `.venv/bin/python docs/screenshots.py`.

Needs `playwright` (the package alone) and Chromium: Debian's, or the one that the variable CHROMIUM names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.async_api import Locator, Page, async_playwright  # noqa: E402

import embedded  # noqa: E402
from client import RunClient  # noqa: E402
from domain.models import TaskStatus  # noqa: E402
from domain.picture import Picture  # noqa: E402
from domain.planning import Planned  # noqa: E402
from prices import priced  # noqa: E402
from runtime import Mode, leave, queue_of  # noqa: E402
from terminal.plans import read_plan  # noqa: E402
from terminal.scripts import follow_script  # noqa: E402
from terminal.session import Session  # noqa: E402

PLAN = ROOT / "examples" / "competitor-brief.yaml"
FAILURES, SCRIPT = ROOT / "examples" / "failures.yaml", ROOT / "examples" / "failures.script.yaml"
PICTURES = ROOT / "docs" / "pictures"
RUN = "competitor-brief-1116-2104"
TASK = f"{RUN}/scan[workflow engines]"

Script = Mapping[str, object]

QUICK: Script = {"config": {"ttft": 0.1, "tokens_per_second": 0}, "rules": []}
REFUSED: Script = {"when": {"task": "scan[queues]"}, "then": {"stop_reason": "refusal"}}
MOMENT: Script = {  # one done, two at work, one before a wall, one refused
    "config": {"ttft": 1},
    "rules": [
        REFUSED,
        {"when": {"task": "scan[workflow engines]"}, "then": {"ttft": 400}},
        {"when": {"task": "scan[agent frameworks]"}, "then": {"ttft": 400}},
        {"when": {"task": "scan[notebooks]", "nth": 1}, "then": {"fault": "rate_limit", "retry_after": 900}},
    ],
}
RUNS = 'WorkflowType="SupervisorWorkflow"'
COLUMNS = ["Status", "Workflow ID", "NightcrewStatus", "NightcrewPlan", "NightcrewCostUsd", "Start"]


def main() -> None:
    """Make the runs in a home of their own, and take the pictures."""
    with tempfile.TemporaryDirectory(prefix="nightcrew-pictures-") as folder:
        asyncio.run(take(Session(Path(folder) / "home"), patient_plan(Path(folder))))
        asyncio.run(take_the_question(Session(Path(folder) / "failures")))


def patient_plan(folder: Path) -> Planned:
    """The example with more time for its tasks, so that the moment lasts as long as the browser needs."""
    file = folder / PLAN.name
    file.write_text(PLAN.read_text("utf-8").replace("timeout: 60s", "timeout: 10m"), "utf-8")
    return plan_of(file)


def plan_of(file: Path) -> Planned:
    """A plan with the prices of its models, as `run` hands it over."""
    planned = read_plan(str(file), params={}, agents=None)
    return replace(planned, plan=priced(planned.plan))


async def take(session: Session, planned: Planned) -> None:
    """Everything up, the runs, the pictures, everything down."""
    await embedded.up(session.settings, Mode.SIMULATED)
    try:
        client = await session.client()
        await make_runs(session, client, planned)
        await shoot(f"{embedded.web_ui_url(session.settings.home)}/namespaces/default/workflows")
        for run in await client.open_runs():
            await client.cancel(run)
    finally:
        await embedded.down(session.settings)


async def take_the_question(session: Session) -> None:
    """A run that waits for a person and for a wall, in a home of its own: its wall would stop the other runs, too."""
    planned = plan_of(FAILURES)
    await embedded.up(session.settings, Mode.SIMULATED)
    try:
        client = await session.client()
        await follow_script(embedded.simulator_url(session.settings), planned.plan.name, SCRIPT.read_text("utf-8"))
        run = await client.submit(planned, id="failures", simulated=True, queue=queue_of(Mode.SIMULATED))
        await until(client, run, lambda picture: len([*picture.of(TaskStatus.WAITING)]) == 2)
        async with browsing() as page:
            await page.goto(f"{embedded.web_ui_url(session.settings.home)}/namespaces/default/workflows/{run}")
            await page.wait_for_url(re.compile("/timeline"))
            await page.goto(page.url.replace("/timeline", "/user-metadata"))
            await details(page, "current-details", "May we write").wait_for()
            await details(page, "details", "Layers").wait_for()
            await keep(page, "failures")
        await client.cancel(run)
    finally:
        await embedded.down(session.settings)


async def make_runs(session: Session, client: RunClient, planned: Planned) -> None:
    """Three runs of other nights, and the one that is looked at."""
    queue = queue_of(Mode.SIMULATED)

    async def start(id: str, script: Script) -> None:
        await direct(session, script)
        await client.submit(planned, id=id, simulated=True, queue=queue)

    await start("competitor-brief-1114-2203", QUICK)
    await until(client, "competitor-brief-1114-2203", lambda picture: picture.ended)
    await start("competitor-brief-1115-2117", {**QUICK, "rules": [REFUSED]})
    await until(client, "competitor-brief-1115-2117", lambda picture: picture.ended)
    await start("competitor-brief-1116-2051", MOMENT)
    await client.pause("competitor-brief-1116-2051", by="someone")
    await start(RUN, MOMENT)
    await until(client, RUN, in_the_middle)


async def direct(session: Session, script: Script) -> None:
    """Tell the simulator how to behave from now on."""
    url = f"{embedded.simulator_url(session.settings)}/script"
    request = urllib.request.Request(url, json.dumps(script).encode(), method="POST")  # noqa: S310 - our own simulator
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).close())  # noqa: S310


async def until(client: RunClient, run: str, true: Callable[[Picture], bool]) -> None:
    """Wait until something is true of a run."""
    async for picture in client.watch(run):
        if true(picture):
            return


def in_the_middle(picture: Picture) -> bool:
    """Some tasks have ended well, one has not, some are at work, one waits."""
    states = {task.status for task in picture.tasks.values()}
    return {TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.RUNNING, TaskStatus.WAITING} <= states


async def shoot(workflows: str) -> None:
    """The list, the run and a task, each once it shows what the picture is for."""
    async with browsing() as page:
        columns = json.dumps({"default": [{"label": name} for name in COLUMNS]})
        await page.add_init_script(f"localStorage.setItem('namespace-workflow-table-columns', {json.dumps(columns)})")

        await page.goto(f"{workflows}?query={quote(RUNS)}")
        await page.get_by_text("PAUSED").wait_for()
        await page.get_by_text("DEGRADED").wait_for()
        await keep(page, "runs", height=440)

        await page.goto(f"{workflows}/{RUN}")
        await page.get_by_text("does outline").first.wait_for()
        await page.get_by_role("heading", name="Timeline").evaluate("heading => heading.scrollIntoView()")
        await keep(page, "timeline")

        await page.goto(page.url.replace("/timeline", "/user-metadata"))
        await details(page, "current-details", "Failed").wait_for()
        await details(page, "details", "Layers").wait_for()
        await keep(page, "run")

        await page.goto(page.url.replace("/user-metadata", "/relationships"))
        await page.get_by_text(TASK).first.wait_for()
        await keep(page, "relationships")

        await page.goto(f"{workflows}/{quote(TASK, safe='')}")
        await page.wait_for_url(re.compile("/timeline"))
        await page.goto(page.url.replace("/timeline", "/user-metadata"))
        await details(page, "current-details", "is at work since").wait_for()
        await keep(page, "task", height=820)


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A page of a real browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport={"width": 1400, "height": 1000}, timezone_id="UTC")
        page.set_default_timeout(120_000)
        yield page
        await browser.close()


def details(page: Page, which: str, text: str) -> Locator:
    """A text in a page's details, which are shown in frames of their own."""
    return page.frame_locator(f"#user-metadata-{which}").get_by_text(text).first


async def keep(page: Page, name: str, *, height: int = 1000) -> None:
    """Write one picture: the upper part of the page, so far as there is something on it."""
    await page.screenshot(path=PICTURES / f"web-{name}.png", clip={"x": 0, "y": 0, "width": 1400, "height": height})


if __name__ == "__main__":
    main()
    leave(0)
