"""When a dead service is started again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from restarts import LONGEST_WAIT, LOOP, PROVEN, Crashes, wait_after

SECONDS = st.integers(min_value=0, max_value=1000)


def lives(durations: list[int]) -> Crashes:
    """A service that is started when it is due, is up for so long, and dies."""
    crashes, now = Crashes().seen_up(0), 0.0
    for duration in durations:
        now += duration
        crashes = crashes.crashed(now)
        assert crashes.next_try is not None
        now = crashes.next_try
        crashes = crashes.seen_up(now)
    return crashes


def test_the_first_restart_is_at_once_and_the_others_wait_longer_and_longer() -> None:
    waits = [wait_after(crashes) for crashes in range(1, 12)]

    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


@given(st.integers(min_value=1, max_value=10**9))
def test_no_wait_is_longer_than_the_longest(crashes: int) -> None:
    assert 0 <= wait_after(crashes) <= wait_after(crashes + 1) <= LONGEST_WAIT


@given(st.lists(SECONDS, min_size=1, max_size=20))
def test_a_next_try_is_known_exactly_while_it_is_down(durations: list[int]) -> None:
    up = lives(durations)
    down = up.crashed(10**6)

    assert up.next_try is None
    assert down.next_try is not None
    assert 10**6 <= down.next_try <= 10**6 + LONGEST_WAIT
    assert down.seen_up(down.next_try).next_try is None


@given(st.lists(SECONDS, min_size=1, max_size=20))
def test_a_loop_is_five_crashes_without_a_proof_in_between(durations: list[int]) -> None:
    crashes = lives(durations)

    streak = 0
    for duration in durations:
        streak = 1 if duration >= PROVEN else streak + 1
    assert (crashes.count, crashes.loop) == (streak, streak >= LOOP)


@given(st.lists(SECONDS, max_size=20), st.integers(min_value=0, max_value=10_000))
def test_five_minutes_up_and_all_is_forgotten(durations: list[int], more: int) -> None:
    up = lives(durations)
    assert up.up_since is not None

    proven = up.seen_up(up.up_since + PROVEN + more)

    assert (proven.count, proven.loop) == (0, False)
    assert proven.crashed(10**7).next_try == 10**7


@given(SECONDS)
def test_a_service_that_never_starts_is_tried_about_once_a_minute(start: int) -> None:
    """An hour of a service that fails in the moment it is started."""
    crashes, tries = Crashes().seen_up(start).crashed(start), [float(start)]
    while tries[-1] < start + 3600:
        assert crashes.next_try is not None
        tries.append(crashes.next_try)
        crashes = crashes.crashed(tries[-1])

    assert len(tries) <= 70
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert all(later >= earlier for earlier, later in pairwise(waits))
    assert crashes.loop
