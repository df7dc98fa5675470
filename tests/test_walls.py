"""Walls: conditions of the account or the provider. They use no attempt, and nobody runs into one twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from doorway import HAIKU, OPUS, Doorway, opened

from activities import model, walls
from activities.gate import Standing
from activities.model import ModelError
from activities.walls import Walls
from domain.models import Parked, WallKind
from simulator import Simulator
from store import open_store

MINUTE = timedelta(minutes=1)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
CANARY = "CANARY-BODY"


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(walls, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def door(simulator: Simulator, tmp_path: Path) -> AsyncIterator[Doorway]:
    async with opened(open_store(str(tmp_path / "store")), simulator.url) as door:
        yield door


# --- what the door replies ---

WALLS: list[tuple[dict[str, Any], WallKind]] = [
    ({"fault": "rate_limit", "retry_after": 3600}, "rate"),
    ({"fault": "rate_limit"}, "rate"),
    ({"fault": "rate_limit", "retry_after": "banana"}, "rate"),
    ({"fault": "rate_limit", "retry_after": -1}, "rate"),
    ({"fault": "spend_limit"}, "spend"),
    ({"fault": "billing"}, "spend"),
    ({"fault": "invalid_request", "message": f"You have reached your specified API usage limits. {CANARY}"}, "spend"),
    ({"fault": "authentication", "message": CANARY}, "key"),
    ({"fault": "permission", "message": CANARY}, "key"),
    ({"fault": "not_found", "message": CANARY}, "model"),
]


@pytest.mark.parametrize(
    ("then", "kind"), WALLS, ids=[f"{'-'.join(map(str, then.values()))[:40]}" for then, _ in WALLS]
)
async def test_a_wall_is_a_reply_and_costs_one_request(
    simulator: Simulator, door: Doorway, then: dict[str, Any], kind: WallKind
) -> None:
    """It says which wall it is and what mends it, in our words; the end only where the provider told one."""
    simulator.script([{"then": then}])
    before = datetime.now(UTC)

    parked = await door.parked()

    assert (parked.why, parked.wall, parked.tries) == ("wall", kind, ())
    assert CANARY not in parked.what
    assert ": " in parked.what
    assert (HAIKU in parked.what) == (kind in {"rate", "model"})
    if then.get("retry_after") == 3600:
        assert parked.until is not None
        assert before + 60 * MINUTE <= parked.until <= datetime.now(UTC) + 60 * MINUTE
    else:
        assert parked.until is None
    assert simulator.calls() == 1


async def test_a_provider_that_cannot_be_connected_is_a_wall_of_the_account(tmp_path: Path) -> None:
    async with opened(open_store(str(tmp_path / "store")), "http://127.0.0.1:1") as door:
        parked, other = await door.parked("a"), await door.parked("other")

    assert (parked.wall, parked.until) == ("unreachable", None)
    assert other.wall == "unreachable"


@pytest.mark.parametrize("fault", ["reset_before_headers", "reset_mid_stream"])
async def test_a_connection_that_stood_and_was_reset_is_no_wall(
    simulator: Simulator, door: Doorway, fault: str
) -> None:
    simulator.script([{"then": {"fault": fault}}])

    failed, error = await door.failed()

    assert (failed.error.retryable, error.non_retryable) == (True, False)


async def test_nobody_asks_while_a_wall_with_a_told_end_stands(simulator: Simulator, door: Doorway) -> None:
    """Calls of other tasks and of other runs turn back with the same end; another model is not concerned (E1)."""
    simulator.script([{"when": {"model": HAIKU}, "then": {"fault": "rate_limit", "retry_after": 3600}}])
    first = await door.parked("a")
    await door.store.put_manifest("another", {})

    parked = [await door.parked("b"), await door.parked("a", run="another"), await door.parked("a", start="again")]
    answered = await door.answered("other")

    assert parked == [first.model_copy(update={"calls": ()})] * 3  # they have asked nobody
    assert answered.attempts == 1
    assert [entry.model for entry in simulator.log] == [HAIKU, OPUS]
    assert door.gate.permissions == 2  # nobody else came that far


async def test_a_wall_of_the_account_stands_before_every_model(simulator: Simulator, door: Doorway) -> None:
    """E16: a key that is withdrawn is tried by what was in flight, and by nobody else."""
    simulator.script([{"then": {"fault": "authentication"}}])

    parked = [await door.parked("a"), await door.parked("other"), await door.parked("b")]

    assert {wall.wall for wall in parked} == {"key"}
    assert simulator.calls() == 1


async def test_an_attempt_that_comes_back_from_its_backoff_parks_without_asking(
    simulator: Simulator, door: Doorway
) -> None:
    """And says what it has used up: a wall gives no attempt back."""
    simulator.script(
        [
            {"when": {"task": "a"}, "then": {"fault": "api_error"}},
            {"when": {"task": "b"}, "then": {"fault": "rate_limit", "retry_after": 3600}},
        ]
    )
    await door.failed("a", attempt=1)
    await door.parked("b")

    parked = await door.parked("a", attempt=2)

    assert [(told.attempt, told.error.type) for told in parked.tries] == [(1, "ProviderFault")]
    assert (simulator.calls("a"), simulator.calls("b")) == (1, 1)


async def test_three_overloaded_tasks_are_a_wall_and_two_are_not(simulator: Simulator, door: Doorway) -> None:
    """However often the two have asked."""
    simulator.script([{"then": {"fault": "overloaded"}}])
    await door.failed("a", attempt=1)
    await door.failed("a", attempt=2)
    failed, error = await door.failed("b", attempt=1)
    assert (failed.error.type, error.non_retryable) == ("Overloaded", False)

    met = await door.parked("c")
    back = await door.parked("a", attempt=3)

    assert (met.wall, met.until, met.tries) == ("overload", None, ())
    assert HAIKU in met.what
    assert (back.wall, [told.attempt for told in back.tries]) == ("overload", [1, 2])
    assert simulator.calls() == 4


async def test_who_probes_an_overloaded_provider_uses_no_attempt(simulator: Simulator, door: Doorway) -> None:
    """E4: also in a process that has not seen the others being refused."""
    simulator.script([{"then": {"fault": "overloaded"}}])

    assert (await door.parked("a", probe=True)).wall == "overload"


async def test_a_call_that_was_about_to_be_made_turns_back_at_a_new_wall(
    simulator: Simulator, door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look is directly before the intent: twenty that wait for their permission are not refused one by one."""
    simulator.script([{"then": {"fault": "rate_limit", "retry_after": 3600}}])
    await door.store.put_manifest("another", {})
    waiting, met = asyncio.Event(), asyncio.Event()

    async def slow_for_another(run: str, _: str) -> Standing:
        if run == "another":
            waiting.set()
            await met.wait()
        return Standing()

    monkeypatch.setattr(door.gate, "permission", slow_for_another)
    late = asyncio.create_task(door.parked("b", run="another"))
    await waiting.wait()
    first = await door.parked("a")
    met.set()

    assert await late == first.model_copy(update={"calls": ()})
    assert simulator.calls() == 1


# --- how long a process believes it ---

RATE = model.RateLimited("x", retry_after=timedelta(seconds=100))
ENDLESS = model.RateLimited("x")


def before(walls: Walls, of: str = HAIKU, *, scheduled: datetime = LONG_AGO, run: str = "run") -> Parked | None:
    return walls.before(run, of, scheduled=scheduled)


def meet(walls: Walls, error: ModelError, task: str = "a", of: str = HAIKU) -> Parked | None:
    return walls.meet(error, of, ("run", task))


def test_a_wall_with_a_told_end_stands_until_then(clock: Clock) -> None:
    walls = Walls()
    met = meet(walls, RATE)

    clock.now += 99.9
    assert before(walls) == met
    assert before(walls, OPUS) is None
    clock.now += 0.2
    assert before(walls) is None


@pytest.mark.parametrize("error", [RATE, ENDLESS])
def test_who_is_sent_after_the_end_by_the_clock_of_the_server_gets_through(clock: Clock, error: ModelError) -> None:
    """Whatever our clock says: turned back, it would be sent again at once, without an end."""
    walls = Walls()
    meet(walls, error)
    now = datetime.now(UTC)

    assert before(walls, scheduled=now) is not None
    assert before(walls, scheduled=now + 2 * MINUTE) is None


@pytest.mark.parametrize("error", [ENDLESS, model.KeyRefused("x"), model.ModelUnknown("x"), model.Unreachable("x")])
def test_a_wall_without_a_told_end_is_believed_for_half_a_minute(clock: Clock, error: ModelError) -> None:
    """The supervisor sends one task to ask after a minute: it must get through."""
    walls = Walls()
    met = meet(walls, error)

    clock.now += 29.9
    assert before(walls) == met
    clock.now += 0.2
    assert before(walls) is None


@pytest.mark.parametrize("error", [model.KeyRefused, model.ModelUnknown, model.Unreachable])
def test_what_must_be_mended_has_no_end_that_a_provider_knows(clock: Clock, error: type[ModelError]) -> None:
    met = meet(Walls(), error("x", retry_after=MINUTE))

    assert met is not None
    assert met.until is None


def test_of_two_words_on_a_wall_the_longer_counts(clock: Clock) -> None:
    walls = Walls()
    first = meet(walls, RATE)
    meet(walls, ENDLESS)

    clock.now += 50
    assert before(walls) == first


def test_a_call_that_was_made_after_a_wall_was_met_and_answered_clears_it(clock: Clock) -> None:
    """One that was under way already says nothing about it."""
    walls = Walls()
    clock.now += 1
    meet(walls, RATE)
    walls.passed(HAIKU, asked=1000.0)
    assert before(walls) is not None

    walls.passed(OPUS, asked=1002.0)
    assert before(walls) is not None
    walls.passed(HAIKU, asked=1002.0)

    assert before(walls) is None


def test_overloads_that_are_more_than_a_minute_apart_are_no_wall(clock: Clock) -> None:
    walls, overloaded = Walls(), model.Overloaded("x")

    for task in "abcdef":
        assert meet(walls, overloaded, task) is None
        clock.now += 31


def test_overloads_of_two_models_are_no_wall(clock: Clock) -> None:
    walls, overloaded = Walls(), model.Overloaded("x")

    assert [meet(walls, overloaded, task, of) for task, of in [("a", HAIKU), ("b", HAIKU), ("c", OPUS)]] == [None] * 3


def test_an_overload_that_nobody_saw_pass_is_still_that_wall(clock: Clock) -> None:
    """One task asks again after a minute: its refusal is the wall, and not the first of three again."""
    walls, overloaded = Walls(), model.Overloaded("x")
    assert [meet(walls, overloaded, task) is None for task in "abc"] == [True, True, False]

    for minutes in 1, 2, 4, 8, 15:
        clock.now += 60 * minutes
        assert before(walls) is None
        assert meet(walls, overloaded, "a") is not None

    asked = clock.now = clock.now + 1
    walls.passed(HAIKU, asked=asked)
    clock.now += 1
    assert meet(walls, overloaded, "a") is None


@pytest.mark.parametrize(("error", "everybody"), [(model.KeyRefused("no"), False), (model.RateLimited("full"), True)])
def test_a_refused_key_is_remembered_for_its_own_run_alone(error: ModelError, everybody: bool) -> None:
    """On the first call of another run it is a mistake of that run: so that run must hear it from the provider."""
    walls = Walls()
    meet(walls, error)

    assert before(walls) is not None
    assert (before(walls, run="other") is not None) is everybody
