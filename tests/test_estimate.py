"""What a plan will cost and how long it will take, by the rules alone: no clock, no store, no provider."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import outlines, plan_of

from domain.costs import AgentShare
from domain.estimate import Estimate, estimate_of
from domain.experience import Experience, experience_of
from domain.forecast import DENSE, SIMULATED_ANSWER, Outlook, Spread
from domain.models import Agent, Need, Pace, Placement, Plan, Task
from domain.prices import Price, PriceList, cost_of, worst_cost
from domain.progress import Outline
from domain.quota.terms import Limits, Terms
from domain.summarizing import SUMMARIZER_TOKENS, most_read
from domain.values import Usage

PRICE = Price(input=Decimal(2), output=Decimal(10), cache_read=Decimal("0.2"), cache_write=Decimal("2.5"))
PRICES = PriceList(source="a list", date="2026-01-01", models={"claude-sonnet-5-5": PRICE})
ANT = Agent(name="ant", version="1", model="claude-sonnet-5-5", instructions="You are an ant.")


def task(id: str, *needs: str, prompt: tuple[str | Placement, ...] = ("Do it.",), **more: object) -> Task:
    values = {"timeout": timedelta(seconds=30), "attempts": 4, "max_tokens": 1000, **more}
    edges = tuple(Need(task=need) for need in needs)
    return Task.model_validate({"id": id, "agent": "ant", "prompt": prompt, "needs": edges, **values})


def plan(*tasks: Task, places: int = 10, mode: Pace = Pace.WINDOW, prices: PriceList | None = PRICES) -> Plan:
    return Plan(name="plan", max_concurrency=places, mode=mode, agents=(ANT,), tasks=tasks, prices=prices)


def live(experience: dict[str, Experience] | None = None, terms: Terms | None = None) -> Outlook:
    return Outlook(simulated=False, texts={}, experience=experience or {}, terms=terms)


def of(estimate: Estimate, id: str) -> tuple[Spread[int], Spread[int]]:
    found = next(task for task in estimate.tasks if task.id == id)
    return found.tokens.input, found.tokens.output


def ascends(spread: Spread[int] | Spread[float] | Spread[Decimal]) -> bool:
    return bool(spread.low <= spread.likely <= spread.high)


@settings(deadline=None)
@given(outlines(), st.booleans())
def test_every_figure_of_any_plan_ascends_and_adds_up(outline: Outline, simulated: bool) -> None:
    whole = plan_of(outline)
    prices = PriceList(source="s", date="d", models={agent.model: PRICE for agent in whole.agents})

    found = estimate_of(whole.model_copy(update={"prices": prices}), Outlook(simulated, texts={}, experience={}))

    assert found.usd is not None
    assert [each.id for each in found.tasks] == [each.id for each in whole.tasks]
    assert ascends(found.usd)
    assert ascends(found.seconds)
    for each in found.tasks:
        assert each.usd is not None
        assert ascends(each.usd)
        assert ascends(each.seconds)
        assert ascends(each.tokens.input)
        assert ascends(each.tokens.output)
    for level in ("low", "likely", "high"):
        assert found.usd.at(level) == sum(each.usd.at(level) for each in found.tasks if each.usd)


def test_low_is_a_short_answer_and_high_is_every_attempt_at_its_longest() -> None:
    found = estimate_of(plan(task("a", max_tokens=1000, attempts=3)), live())

    into, out = of(found, "a")
    assert (out.low, out.likely, out.high) == (167, 500, 3000)
    assert found.usd is not None
    assert found.usd.likely == cost_of(PRICE, Usage(input=into.likely, output=500))
    assert found.usd.high == 3 * worst_cost(PRICE, Usage(input=into.high // 3, output=1000))


def test_what_comes_from_upstream_is_what_upstream_will_likely_answer() -> None:
    alone = of(estimate_of(plan(task("a")), live()), "a")[0]

    after = of(estimate_of(plan(task("a"), task("b", "a")), live()), "b")[0]

    assert 500 < after.likely - alone.likely < 530  # its answer, and the frame around it
    assert after.high > alone.high + 4 * 1000


def test_a_result_that_stands_in_a_prompt_twice_is_read_twice() -> None:
    place = Placement(name="a", tasks=("a",))
    once, twice = (
        of(estimate_of(plan(task("a"), task("b", "a", prompt=prompt)), live()), "b")[0].likely
        for prompt in [("Read ", place), ("Read ", place, " and again ", place)]
    )

    assert 500 < twice - once < 540


def test_an_edge_that_carries_little_is_cheap() -> None:
    """A summary of 600 bytes is about 150 tokens, however long the answer."""
    wide = plan(task("a", max_tokens=8000), task("b", "a"))
    outlook = Outlook(simulated=False, texts={}, experience={}, carried=lambda _: 600)

    whole, summary = (of(estimate_of(wide, each), "b")[0] for each in (live(), outlook))

    assert whole.likely - summary.likely == 4000 - 150


def test_who_can_wait_is_shown_half_the_price_but_never_counted_on_it() -> None:
    now, later = (estimate_of(plan(task("a", latency=latency)), live()).usd for latency in ("normal", "relaxed"))

    assert now is not None
    assert later is not None
    assert (later.low, later.likely, later.high) == (now.low / 2, now.likely / 2, now.high)


def test_a_call_for_a_summary_is_in_the_highest_figure() -> None:
    """Its agent is asked to give one by itself, so that it is unlikely; each attempt may need one."""
    without, with_one = (estimate_of(plan(task("a", summarise=wanted)), live()).usd for wanted in (False, True))

    assert without is not None
    assert with_one is not None
    read = Usage(input=most_read(task("a")) // DENSE, output=SUMMARIZER_TOKENS)
    assert with_one.high >= without.high + 4 * worst_cost(PRICE, read)


def test_a_model_without_a_price_has_no_cost_and_is_named() -> None:
    found = estimate_of(plan(task("a"), prices=PriceList(source="s", date="d")), live())

    assert (found.usd, found.tasks[0].usd, found.unpriced) == (None, None, ("claude-sonnet-5-5",))


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 400))
def test_likely_moves_toward_what_the_agent_did_before(answers: int, each: int) -> None:
    """The more it has answered, the nearer; and never beyond."""
    known = experience_of([[AgentShare(agent="ant@1", model="m", answers=answers, answered=answers * each)]])

    guess, learned = (of(estimate_of(plan(task("a")), live(dict(past))), "a")[1].likely for past in ({}, known))

    assert each <= learned < guess
    assert abs(learned - each) <= (guess - each) / (answers + 1) + 1


def test_another_version_of_an_agent_has_learned_nothing() -> None:
    known = {"ant@2": Experience(answers=9, output=90)}

    assert of(estimate_of(plan(task("a")), live(known)), "a")[1].likely == 500


def test_a_simulated_answer_is_as_long_as_the_simulator_makes_it() -> None:
    found = estimate_of(plan(task("a"), task("b", max_tokens=20)), Outlook(simulated=True, texts={}, experience={}))

    assert [of(found, id)[1].likely for id in ("a", "b")] == [SIMULATED_ANSWER, 20]


@pytest.mark.parametrize(
    ("tasks", "places", "mode", "turns"),
    [
        ([task("a"), task("b"), task("c")], 3, Pace.WINDOW, 1),
        ([task("a"), task("b"), task("c")], 1, Pace.WINDOW, 3),
        ([task("a"), task("b", "a"), task("c", "b")], 3, Pace.WINDOW, 3),
        ([task("a"), task("b"), task("c", "a")], 2, Pace.WAVES, 2),
    ],
)
def test_time_follows_the_longest_chain_and_the_places(tasks: list[Task], places: int, mode: Pace, turns: int) -> None:
    one = estimate_of(plan(task("a")), live()).seconds.likely

    found = estimate_of(plan(*tasks, places=places, mode=mode), live())

    assert found.seconds.likely == pytest.approx(turns * one)


def test_a_wave_waits_for_its_last_task() -> None:
    long = task("a", max_tokens=4000)
    tasks = [long, task("b"), task("c", "b"), task("d", "c")]

    window, waves = (estimate_of(plan(*tasks, places=2, mode=mode), live()).seconds.likely for mode in Pace)

    assert waves > window


def test_a_quota_that_lets_less_through_than_the_places_do_takes_its_time() -> None:
    """100 requests at 10 a minute, of which one minute is there at once and a tenth is left unused."""
    terms = Terms(headroom=0.1, limits={"default": Limits(requests=10)})
    many = [task(f"t{number}") for number in range(99)]

    found = estimate_of(plan(*many, places=99), live(terms=terms))

    assert found.seconds.likely == pytest.approx(60 * (99 - 9) / 9)
