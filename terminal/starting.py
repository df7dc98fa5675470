"""`run` and `submit`: a plan becomes a run. The one stays to watch it, the other leaves at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from temporalio.service import RPCError

import embedded
from client import RunClient
from domain.models import Pace
from domain.planning import Planned
from pollers import workers_on
from prices import priced
from runtime import Credentials, Mode, Settings, connect, queue_of, temporal_settings
from terminal.estimating import Offer, ask_for, exists, offer_for
from terminal.following import follow
from terminal.lease import Lease
from terminal.outcome import Exit, print_json
from terminal.plans import read_plan
from terminal.scripts import check_simulated, follow_script, read_script_file
from terminal.session import Session, mode_now
from terminal.show_estimate import estimate_line


@dataclass(frozen=True)
class Order:
    """What a person asks for, read and checked whole before anything is started."""

    planned: Planned
    mode: Mode
    id: str | None
    script: str | None
    agreed: bool = False
    """Whether the person has said yes beforehand, whatever it costs."""

    @property
    def budget(self) -> Decimal | None:
        """What it may cost, by the command line or the plan."""
        return self.planned.plan.budget

    @classmethod
    def read(
        cls,
        plan: str,
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
        agreed: bool = False,
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
            settings=settings,
        )
        text = read_script_file(script) if script is not None else None
        return cls(replace(planned, plan=priced(planned.plan)), mode, id, text, agreed)


async def run(session: Session, order: Order, *, limit: timedelta | None, as_json: bool) -> Exit:
    """Up, submit, watch, report. What this started is stopped again when nobody needs it any more."""
    offer = await _agree(session, order)
    _announce(session, order)
    async with session.up(order.mode):
        client = await session.client()
        id = await _hand_over(session, client, order, offer)
        return await follow(session, client, id, limit, as_json=as_json)


async def submit(session: Session, order: Order, *, as_json: bool) -> Exit:
    """Up if needed, start, leave. The home stays up until `down`, whoever had started it."""
    offer = await _agree(session, order)
    _announce(session, order)
    embedded.prepare_home(session.settings.home)
    with Lease(session.settings.home) as lease:
        if temporal_settings() is None:
            await embedded.up(session.settings, order.mode)
        else:
            await _tell_if_nobody_works(session, order.mode)
        client = await session.client()
        id = await _hand_over(session, client, order, offer)
        lease.forget()  # what a `run` had started for itself is needed by this run now
    if as_json:
        print_json({"schema": "nightcrew.submitted/1", "run": id, "simulated": order.mode is Mode.SIMULATED})
    else:
        sys.stdout.write(f"{id}\n")
        sys.stdout.flush()
    if end := await client.end(id):
        sys.stderr.write(f"This is the run of that id that has ended before, {end['status']}; nothing was started.\n")
        return Exit.DONE
    count = len(order.planned.plan.tasks)
    sys.stderr.write(
        f"{order.mode.upper()}, {count} task{'s' if count > 1 else ''}. The run goes on without this terminal:\n"
        f"  {session.starter} watch {id}\n"
        f"  {session.starter} result {id} --wait\n"
        f"  {session.starter} down    # stops this home; an open run waits for the next up\n"
    )
    return Exit.DONE


async def _tell_if_nobody_works(session: Session, mode: Mode) -> None:
    """A hint, and no more: when it cannot be known, the run is started all the same."""
    with suppress(RPCError):
        if not await workers_on(await connect(session.settings), queue_of(mode)):
            sys.stderr.write(
                f"Nobody works on the queue {queue_of(mode)} yet; the run waits for a worker. "
                f"`{session.starter} up` starts one here.\n"
            )


def _announce(session: Session, order: Order) -> None:
    for warning in order.planned.warnings:
        sys.stderr.write(f"{warning}\n")
    if not session.is_up():
        sys.stderr.write(f"Starting in {session.settings.home} ...\n")


async def _agree(session: Session, order: Order) -> Offer:
    """The estimate and the consent to it, before anything is started. A run of this id that is there was agreed to."""
    mode = order.mode
    offer = await offer_for(session.settings, order.planned, mode, budget=order.budget, agreed=order.agreed)
    sys.stderr.write(f"{estimate_line(offer.estimate, mode)}\n")
    known = order.id is not None and await exists(session.settings, order.id)
    if not (order.agreed or known):
        ask_for(offer)
    return offer


async def _hand_over(session: Session, client: RunClient, order: Order, offer: Offer) -> str:
    if order.script is not None:
        await follow_script(embedded.simulator_url(session.settings), order.planned.plan.name, order.script)
    simulated = order.mode is Mode.SIMULATED
    payer = None if simulated else Credentials.from_environment()
    provider = payer.address if payer is not None else None
    queue = queue_of(order.mode)
    return await client.submit(
        order.planned, id=order.id, simulated=simulated, queue=queue, provider=provider, estimate=offer.estimate
    )
