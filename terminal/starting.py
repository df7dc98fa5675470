"""`run` and `submit`: a plan becomes a run. The one stays to watch it, the other leaves at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from temporalio.service import RPCError

import embedded
from client import RunClient, UnknownRun
from domain.models import Pace
from domain.planning import Planned
from domain.regions import needed
from heritage import NOTHING, Heritage, regrown, reused
from pollers import workers_on
from prices import priced
from regional_workers import deserted, told
from runtime import Credentials, Mode, Settings, connect, queue_of, temporal_settings
from store import RUN_ID, shown_location
from terminal.beginnings import check_room
from terminal.estimating import Offer, ask_for, exists, offer_for
from terminal.following import follow
from terminal.lease import Lease
from terminal.outcome import Exit, Refusal, print_json
from terminal.plans import Written, part_of, read_plan
from terminal.scripts import check_simulated, follow_script, read_script_file
from terminal.session import Session, mode_now
from terminal.show_estimate import estimate_line
from terminal.text import counted


@dataclass(frozen=True)
class Order:
    """What a person asks for, read and checked whole before anything is started."""

    planned: Planned
    mode: Mode
    id: str | None
    script: str | None
    reuse: str | None = None
    """The run whose results shall be taken over, as the person calls it."""
    heritage: Heritage = NOTHING
    """What the run starts with."""
    agreed: bool = False
    """Whether the person has said yes beforehand, whatever it costs."""

    @property
    def budget(self) -> Decimal | None:
        """What it may cost, by the command line or the plan."""
        return self.planned.plan.budget

    @classmethod
    def read(
        cls,
        plan: Written | str,
        *,
        params: Mapping[str, str],
        agents: Path | None,
        max_concurrency: int | None,
        pace: Pace | None,
        id: str | None,
        simulate: bool,
        script: Path | None,
        settings: Settings,
        budget: Decimal | None = None,
        region: str | None = None,
        agreed: bool = False,
        reuse: str | None = None,
        only: Sequence[str] = (),
    ) -> Order:
        """The order, or a refusal with every mistake in it."""
        mode = mode_now(simulate=simulate)
        if script is not None:
            check_simulated(mode)
        planned = read_plan(
            plan,
            params=params,
            agents=agents,
            max_concurrency=max_concurrency,
            mode=pace,
            budget=budget,
            region=region,
            settings=settings,
            live=mode is Mode.LIVE,
        )
        planned = part_of(planned, only) if only else planned
        text = read_script_file(script) if script is not None else None
        return cls(replace(planned, plan=priced(planned.plan)), mode, id, text, reuse, agreed=agreed)


async def run(session: Session, order: Order, *, limit: timedelta | None, as_json: bool) -> Exit:
    """Up, submit, watch, report. What this started is stopped again when nobody needs it any more."""
    check_room(session.settings)
    order = await with_results(session, order)
    offer = await agree(session, order)
    announce(session, order)
    async with session.up(order.mode):
        client = await session.client()
        await _tell_of_deserted_regions(session, order)
        id = await hand_over(session, client, order, offer)
        return await follow(session, client, id, limit, as_json=as_json)


async def submit(session: Session, order: Order, *, as_json: bool) -> Exit:
    """Up if needed, start, leave. The home stays up until `down`, whoever had started it."""
    check_room(session.settings)
    order = await with_results(session, order)
    offer = await agree(session, order)
    id, end = await leave_running(session, order, offer)
    if as_json:
        print_json({"schema": "nightcrew.submitted/1", "run": id, "simulated": order.mode is Mode.SIMULATED})
    else:
        sys.stdout.write(f"{id}\n")
        sys.stdout.flush()
    if end is not None:
        sys.stderr.write(f"This is the run of that id that has ended before, {end['status']}; nothing was started.\n")
        return Exit.DONE
    tell_how_to_come_back(session, order, id)
    return Exit.DONE


async def leave_running(
    session: Session, order: Order, offer: Offer | None = None
) -> tuple[str, dict[str, Any] | None]:
    """Bring the home up if needed and start the run: its id and, when a run of that id had ended before, how."""
    check_room(session.settings)
    announce(session, order)
    embedded.prepare_home(session.settings.home)
    with Lease(session.settings.home) as lease:
        if temporal_settings() is None:
            await embedded.up(session.settings, order.mode)
        else:
            await _tell_if_nobody_works(session, order)
        client = await session.client()
        await _tell_of_deserted_regions(session, order)
        # Before it is started: one of which everything is taken over ends at once.
        end = await client.end(order.id) if order.id is not None and RUN_ID.fullmatch(order.id) else None
        id = await hand_over(session, client, order, offer)
        lease.forget()  # what a `run` had started for itself is needed by this run now
    return id, end


def tell_how_to_come_back(session: Session, order: Order, id: str) -> None:
    """What a person may do with a run that goes on without them."""
    count = len(order.planned.plan.tasks)
    sys.stderr.write(
        f"{order.mode.upper()}, {count} task{'s' if count > 1 else ''}. The run goes on without this terminal:\n"
        f"  {session.starter} watch {id}\n"
        f"  {session.starter} result {id} --wait\n"
        f"  {session.starter} down    # stops this home; an open run waits for the next up\n"
    )


async def with_results(session: Session, order: Order) -> Order:
    """The order with what the earlier run has done that it names: known before anything is started."""
    if order.reuse is None:
        return order
    try:
        reader = await session.reader()
        run = await reader.resolve(order.reuse)
    except UnknownRun as unknown:
        where = shown_location(session.settings.store)
        raise UnknownRun(f"{unknown}: results are taken over within one store, and this one is {where}") from None
    if run == order.id:
        message = f"--reuse {order.reuse} is the run {run} itself: name the one before it."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    before = await reader.picture(run)
    simulated = order.mode is Mode.SIMULATED
    planned = replace(order.planned, plan=await regrown(reader, order.planned.plan, before))
    heritage = await reused(reader, planned.plan, before, simulated=simulated)
    return replace(order, planned=planned, heritage=heritage)


async def _tell_of_deserted_regions(session: Session, order: Order) -> None:
    """The same of every region that the plan names: `up` starts no worker of one."""
    with suppress(RPCError):
        regions = needed(order.planned.plan)
        for queue in await deserted(await connect(session.settings), order.mode, regions) if regions else ():
            sys.stderr.write(f"{told(queue, session.starter)}\n")


async def _tell_if_nobody_works(session: Session, order: Order) -> None:
    """A hint, and no more: when it cannot be known, the run is started all the same."""
    mode = order.mode
    if order.planned.plan.region is not None:
        return  # it needs the workers of its region alone
    with suppress(RPCError):
        if not await workers_on(await connect(session.settings), queue_of(mode)):
            sys.stderr.write(
                f"Nobody works on the queue {queue_of(mode)} yet; the run waits for a worker. "
                f"`{session.starter} up` starts one here.\n"
            )


def announce(session: Session, order: Order) -> None:
    """What to know before a run is begun: doubts about its plan, what it takes over, what is started for it."""
    for warning in order.planned.warnings:
        sys.stderr.write(f"{warning}\n")
    if (before := order.heritage.reuses) is not None:
        kept, tasks = len(order.heritage.kept), counted(len(order.planned.plan.tasks), "task")
        sys.stderr.write(f"Takes over {kept:,} of {tasks} from {before}.\n")
    if not session.is_up():
        sys.stderr.write(f"Starting in {session.settings.home} ...\n")


async def agree(session: Session, order: Order) -> Offer:
    """The estimate and the consent to it, before anything is started. A run of this id that is there was agreed to."""
    mode = order.mode
    offer = await offer_for(
        session.settings, order.planned, mode, budget=order.budget, agreed=order.agreed, kept=order.heritage.kept
    )
    line = Text(estimate_line(offer.estimate, mode))
    Console(stderr=True).print(line, soft_wrap=not sys.stderr.isatty())
    known = order.id is not None and await exists(session.settings, order.id)
    if not (order.agreed or known):
        ask_for(offer)
    return offer


async def hand_over(session: Session, client: RunClient, order: Order, offer: Offer | None) -> str:
    """Start the run at a home that is up; its id."""
    if order.script is not None:
        await follow_script(
            embedded.simulator_url(session.settings), order.planned.plan.name, order.script, session.starter
        )
    simulated = order.mode is Mode.SIMULATED
    payer = None if simulated else Credentials.from_environment()
    provider = payer.address if payer is not None else None
    queue = queue_of(order.mode)
    return await client.submit(
        order.planned,
        id=order.id,
        simulated=simulated,
        queue=queue,
        provider=provider,
        estimate=offer.estimate if offer is not None else None,
        heritage=order.heritage,
    )
