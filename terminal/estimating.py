"""`estimate`, and what `run` and `submit` do before they start anything: the estimate, and the consent to it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from rich.console import Console

from domain.caps import limits_of
from domain.consent import Consent, decision_for
from domain.estimate import Estimate, estimate_of, without
from domain.experience import Experience
from domain.forecast import Outlook
from domain.models import Plan
from domain.planning import Planned
from domain.prices import UnknownPrice
from domain.replanning import most_added
from domain.stakes import stakes_of
from experience import recent_experience
from runtime import Mode, Settings
from store import Store, StoreUnavailable, open_store
from terminal.outcome import Exit, Refusal, print_json
from terminal.show_estimate import document_of, show_estimate


@dataclass(frozen=True)
class Offer:
    """What a plan will cost, and whether it may start."""

    estimate: Estimate
    consent: Consent


async def estimate(settings: Settings, planned: Planned, mode: Mode, budget: Decimal | None, *, as_json: bool) -> Exit:
    """The estimate of a plan on stdout. Of a simulated run also what it would cost live, where answers are longer."""
    offer = await offer_for(settings, planned, mode, budget=budget)
    live = await _foresee(settings, planned, Mode.LIVE) if mode is Mode.SIMULATED else None
    if as_json:
        print_json(document_of(planned.plan.name, offer.estimate, offer.consent, mode, live))
    else:
        show_estimate(Console(), offer.estimate, offer.consent, mode, live)
    return Exit.DONE


async def offer_for(
    settings: Settings,
    planned: Planned,
    mode: Mode,
    *,
    budget: Decimal | None,
    agreed: bool = False,
    kept: Collection[str] = (),
) -> Offer:
    """The estimate and the decision. Where money is limited, a model without a price is refused.

    Tasks that are kept of an earlier run cost nothing.
    Who has agreed to any cost, and set no budget, may use such a model: there is nothing to hold its cost against.
    """
    plan = planned.plan
    limited = budget is not None or settings.daily_usd is not None or any(True for _ in limits_of(plan))
    if limited or (mode is Mode.LIVE and not agreed):
        _check_prices(plan, limited=limited)
    found = without(await _foresee(settings, planned, mode), kept)
    decision = decision_for(
        found,
        budget=budget,
        ask_above=settings.ask_above_usd,
        simulated=mode is Mode.SIMULATED,
        stakes=[*stakes_of(plan, found)],
        daily=settings.daily_usd,
        unforeseen=most_added(task for task in plan.tasks if task.id not in kept),
    )
    return Offer(found, decision)


def ask_for(offer: Offer) -> None:
    """Go on, ask the person at the terminal, or refuse. Nothing has been started, and the provider was not asked."""
    consent = offer.consent
    if consent.decision == "run":
        return
    remedy = "Nothing was started. --yes starts it all the same."
    if consent.decision == "refuse":
        remedy += " Or set it higher." if consent.capped else " Or set a higher --budget."
    elif sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"{_sentence(consent.why)} Start it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in {"y", "yes"}:
            return
        raise Refusal("Nothing was started.", code="money", exit=Exit.MONEY)
    else:
        remedy += " So does a --budget, which it must keep to."
    raise Refusal(f"{_sentence(consent.why)} {remedy}", code="money", exit=Exit.MONEY)


async def exists(settings: Settings, run: str) -> bool:
    """Whether there is such a run: who names it again starts nothing."""
    store = _store(settings)
    return store is not None and await store.has_run(run)


def _check_prices(plan: Plan, *, limited: bool) -> None:
    try:
        if plan.prices is not None:
            plan.prices.check({agent.model for agent in plan.agents})
    except UnknownPrice as unknown:
        limit = "a budget cannot be kept" if limited else "nobody can say what this will cost"
        how = "Choose a model that has one, or install a genai-prices that knows it"
        how += "." if limited else "; --yes starts all the same, at whatever it costs."
        message = f"{_sentence(str(unknown))} Without it {limit}. {how}"
        raise Refusal(message, code="unknown_price", exit=Exit.WRONG) from None


async def _foresee(settings: Settings, planned: Planned, mode: Mode) -> Estimate:
    simulated = mode is Mode.SIMULATED
    outlook = Outlook(
        simulated=simulated,
        texts={ref: content.decode() for ref, content in planned.contents.items()},
        experience=await _experience(settings, simulated=simulated),
        terms=settings.terms,
    )
    return estimate_of(planned.plan, outlook)


async def _experience(settings: Settings, *, simulated: bool) -> Mapping[str, Experience]:
    """What this home has learned. It is a help and no more: without it there is a guess."""
    store = _store(settings)
    if store is None:
        return {}
    try:
        return await recent_experience(store, simulated=simulated)
    except StoreUnavailable:
        return {}


def _store(settings: Settings) -> Store | None:
    """The store, if there is one: an estimate makes no folders."""
    if "://" not in settings.store and not Path(settings.store).is_dir():
        return None
    return open_store(settings.store)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
