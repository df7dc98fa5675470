"""The window: fewer calls at once when the provider is short of room, and slowly more again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from domain.quota.bank import Bank, draw
from domain.quota.buckets import later
from domain.quota.lane import Lane
from domain.quota.terms import Limits, Terms
from domain.quota.view import page_of, view_of
from domain.quota.window import CALM, SAMPLE, felt
from domain.quota.words import Ask, Call, LaneReport

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LANE = "haiku-4"


def after(lane: Lane, answers: int, *, seconds: float = 1.0, troubles: int = 0, flying: int = 16, at: int = 0) -> Lane:
    """The lane after so many answers, each of which took so long to its first word."""
    now = NOON + timedelta(seconds=at)
    spoken = answers * seconds
    return felt(lane, answers=answers, seconds=spoken, done=answers, troubles=troubles, flying=flying, now=now)


def test_a_refusal_halves_what_is_under_way() -> None:
    lane = after(Lane(), 10, troubles=1, flying=16)

    assert lane.window == 8


def test_those_under_way_do_not_halve_it_again() -> None:
    """They were sent before: their refusals tell of the same moment."""
    lane = after(Lane(), 0, troubles=1, flying=16)
    again = after(lane, 0, troubles=3, flying=15, at=1)
    later = after(again, 0, troubles=1, flying=8, at=1 + CALM.seconds)

    assert (again.window, later.window) == (8, 4)


def test_it_never_closes() -> None:
    """Where hardly anything is under way there is nothing to gain, and one call that hangs would stop everybody."""
    lane = Lane()
    for turn in range(10):
        lane = after(lane, 0, troubles=1, flying=16, at=turn * 2 * CALM.seconds)

    assert lane.window == 2
    assert after(Lane(), 0, troubles=1, flying=2).window is None


def test_a_narrowed_window_is_kept_and_shown() -> None:
    """In what the bank carries over, on its page in the Web UI and by `quota`."""
    bank = Bank(lanes={LANE: after(Lane(), 10, troubles=1, flying=16)})

    kept = Bank.model_validate_json(bank.model_dump_json())

    assert kept.lanes[LANE].window == 8
    view = view_of(kept, NOON)
    assert view.lanes[LANE].window == 8
    assert "at most 8 at once" in page_of(view)


def test_it_grows_back_with_time_when_nobody_answers() -> None:
    lane = after(Lane(), 0, troubles=1, flying=16)

    wider = later(lane, 20.0, 0.1, NOON)
    open = later(wider, 60.0, 0.1, NOON)

    assert (wider.window, open.window) == (10, None)


def test_answers_that_become_slow_narrow_it() -> None:
    """Not the first ones: nobody knows yet what is usual."""
    usual = after(after(Lane(), SAMPLE), SAMPLE)
    slow = after(usual, SAMPLE, seconds=3.0)

    assert (usual.window, slow.window) == (None, 0.7 * 16)


def test_answers_that_stay_slow_are_the_usual_ones() -> None:
    """Larger prompts take longer with fewer calls too: the window is halved once, and grows back."""
    lane, windows = after(after(Lane(), SAMPLE), SAMPLE), list[float | None]()
    for turn in range(20):
        under_way = int(lane.window or 16)
        lane = after(lane, under_way, seconds=5.0, flying=under_way, at=10 * turn)
        windows.append(lane.window)

    assert min(window for window in windows if window is not None) == 0.7 * 16
    assert lane.window is None


def test_it_grows_by_one_in_a_round_and_is_forgotten_when_it_has_grown_back() -> None:
    lane = after(Lane(), 0, troubles=1, flying=16)

    windows = []
    for turn in range(8):
        lane = after(lane, int(lane.window or 0), flying=8, at=10 + turn)
        windows.append(None if lane.window is None else round(lane.window))

    assert windows == [9, 10, 11, 12, 13, 14, 15, None]


def test_the_bank_grants_no_more_than_the_window() -> None:
    """Whatever the limits would allow; those of other processes count too."""
    terms = Terms(limits={"default": Limits(requests=10_000)})

    def ask(worker: str, number: int, *, flying: int = 0, troubles: int = 0, calls: int = 0) -> Ask:
        wanted = tuple(Call(number=one, lane=LANE, amounts={"requests": 1.0}, run="r") for one in range(calls))
        lanes = {LANE: LaneReport(flying=flying, troubles=troubles)}
        return Ask(worker=worker, number=number, clock=0, hold=0.3, terms=terms, lanes=lanes, calls=wanted)

    bank, _ = draw(Bank(lanes={LANE: Lane()}), ask("v", 1, flying=6), NOON)
    bank, _ = draw(bank, ask("w", 1, flying=4, troubles=1), NOON)
    assert bank.lanes[LANE].window == 5

    bank, grant = draw(bank, ask("v", 2, flying=2, calls=8), NOON)
    assert grant.numbers == ()
    assert grant.lanes[LANE].obstacle == "window"

    _, grant = draw(bank, ask("w", 2, flying=1, troubles=1, calls=8), NOON)
    assert len(grant.numbers) == 5 - 2 - 1


def test_a_class_of_which_nothing_is_known_begins_with_a_few() -> None:
    """And one more with every answer: never everything at once, however much the limits would allow."""
    terms = Terms(limits={"default": Limits(requests=10_000)})
    wanted = tuple(Call(number=one, lane=LANE, amounts={"requests": 1.0}, run="r") for one in range(50))

    def granted(bank: Bank, number: int, *, done: int) -> tuple[Bank, int]:
        lanes = {LANE: LaneReport(done=done)}
        ask = Ask(worker="w", number=number, clock=0, hold=0.3, terms=terms, lanes=lanes, calls=wanted)
        bank, grant = draw(bank, ask, NOON)
        return bank, len(grant.numbers)

    bank, first = granted(Bank(), 1, done=0)
    bank, second = granted(bank, 2, done=4)
    bank, third = granted(bank, 3, done=12)
    _, last = granted(bank, 4, done=40)

    assert (first, second, third, last) == (4, 8, 16, 50)
