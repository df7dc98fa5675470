"""The trap as a benchmark: what no schedule can beat, and what its page says of the samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trap_claims import avoided, goal, slower_at_once, sweet_spot, took_so_long
from trap_limit import physical_limit
from trap_sample import ALL, OURS, OWN, SDK, SEMAPHORE, UNTIL_DONE, WAVES, Arm, Sample, keep, read_samples, sample_of
from trap_scene import QUOTA, Call, foreseen_work
from trap_table import sweep, table, uneven
from trap_taken import SWEEP, Taken, all_arms, arms_of_the_sweep

from simulator.config import Limits
from simulator.limits import Limiter

CALL = Call(input_tokens=100, output_tokens=50, max_tokens=200, seconds=2.0)
COUNTS = st.integers(1, 2000)
CALLS = st.builds(
    lambda asked, answered, unused, seconds: Call(asked, answered, answered + unused, seconds),
    COUNTS,
    COUNTS,
    st.integers(0, 1000),
    st.floats(0.1, 20),
)


def sample(arm: Arm, seconds: float, *, seed: int = 1, refused: int = 0, lost: int = 0, requests: int = 23) -> Sample:
    return Sample("quota", arm, seed, seconds, 3.0, requests, refused, timeouts=0, lost=lost)


def taken(*samples: Sample) -> Taken:
    return Taken("A tight quota", samples, {1: (20.0, 22.0), 2: (20.0, 22.0)})


# The physical limit


def test_without_a_quota_only_the_calls_take_time() -> None:
    assert physical_limit([CALL] * 22, CALL, Limits()) == 4.0


def test_the_last_call_waits_for_its_request() -> None:
    """Five of 22 at once, the others one a second; then its answer, then the synthesis."""
    assert physical_limit([CALL] * 22, CALL, Limits(requests=60, burst=5 / 60)) == pytest.approx(17 + 2 + 2)


def test_output_is_taken_as_used_but_for_the_last_call_which_is_charged_ahead() -> None:
    limits = Limits(output_tokens=6000, burst=0.1)  # 100 a second, 600 at once

    assert physical_limit([CALL] * 22, CALL, limits) == pytest.approx((21 * 50 + 200 - 600) / 100 + 2 + 2)


def test_a_synthesis_that_is_large_waits_for_its_own_input() -> None:
    limits = Limits(input_tokens=6000, burst=0.1)

    assert physical_limit([CALL], replace(CALL, input_tokens=1500), limits) == pytest.approx((1600 - 600) / 100 + 2)


def test_a_provider_that_is_full_is_a_limit_too() -> None:
    assert physical_limit([CALL] * 22, CALL, Limits(), capacity=4) == pytest.approx(11 + 2)


def test_headroom_leaves_less_of_bucket_and_refill() -> None:
    limits = Limits(requests=60, burst=5 / 60)

    assert physical_limit([CALL] * 22, CALL, limits, headroom=0.1) == pytest.approx((22 - 4.5) / 0.9 + 4)


@given(st.lists(CALLS, min_size=1, max_size=8), CALLS, st.integers(1, 100), st.integers(2000, 50_000))
def test_no_schedule_that_the_provider_admits_is_faster(
    calls: list[Call], synthesis: Call, requests: int, tokens: int
) -> None:
    """The greedy one, on the provider's own buckets. A call that is larger than a bucket may leave a debt there."""
    limits = Limits(requests=requests, input_tokens=max(tokens, 3000), output_tokens=max(tokens, 3000))

    assert greedy(calls, synthesis, limits) >= physical_limit(calls, synthesis, limits) - 1e-3


def greedy(calls: list[Call], synthesis: Call, limits: Limits) -> float:
    """When all is done if each call begins as soon as it is admitted; what it did not use is given back at its end."""
    limiter, now, open_calls = Limiter(limits), 0.0, list[tuple[float, int]]()

    def wait_until(then: float) -> None:
        nonlocal now
        for end, unused in sorted(call for call in open_calls if call[0] <= then):
            limiter.settle("m", unused_output=unused, now=end)
            open_calls.remove((end, unused))
        now = then

    def begin(call: Call) -> float:
        while wait := limiter.admit("m", input_tokens=call.input_tokens, output_tokens=call.max_tokens, now=now):
            wait_until(min([now + wait, *(end for end, _ in open_calls)]))
        open_calls.append((now + call.seconds, call.max_tokens - call.output_tokens))
        return now + call.seconds

    last = max(begin(call) for call in calls)
    wait_until(last)
    return begin(synthesis)


def test_the_work_is_known_before_it_is_done() -> None:
    """22 calls and a synthesis that is told of all of them; another seed is other luck with the same prompts."""
    calls, synthesis = foreseen_work(QUOTA.provider(1))
    others, _ = foreseen_work(QUOTA.provider(2))

    assert len(calls) == 22
    assert synthesis.input_tokens > sum(call.output_tokens for call in calls)
    assert [call.input_tokens for call in calls] == [call.input_tokens for call in others]
    assert [call.seconds for call in calls] != [call.seconds for call in others]


# Samples


def test_a_sample_is_told_by_the_bill() -> None:
    answered = {"path": "/v1/messages", "ended": 105.0, "status": 200, "stop_reason": "end_turn", "client_left": False}
    bill = [
        answered,
        {**answered, "ended": 103.0},
        {**answered, "ended": 101.0, "status": 429, "stop_reason": None},
        {**answered, "ended": 102.0, "stop_reason": None, "client_left": True},
        {**answered, "path": "/v1/messages/count_tokens", "ended": 100.5},
    ]

    made = sample_of("quota", Arm(ALL, 22, SDK), 1, began=100.0, seconds=6.0, lost=2, bill=bill)

    assert (made.first, made.requests, made.refused, made.timeouts, made.lost) == (3.0, 4, 1, 1, 2)


def test_kept_samples_are_read_as_they_came_last(tmp_path: Path) -> None:
    before, theirs, again = sample(ours := Arm(OURS, 22, OWN), 40), sample(Arm(ALL, 22, SDK), 10), sample(ours, 25)

    for one in (before, theirs, again):
        keep(one, tmp_path / "samples.jsonl")

    assert read_samples(tmp_path / "samples.jsonl") == [again, theirs]


# The page


def test_every_arm_is_measured_once_and_has_its_row() -> None:
    arms = all_arms()
    found = taken(*(sample(arm, 30.0) for arm in arms))

    assert len(set(arms)) == len(arms) == 16
    assert table(found).count("\n| ") == 10
    assert sweep(found).count("\n| ") == len(SWEEP)


def test_an_arm_that_was_not_run_on_every_seed_is_named() -> None:
    whole = [sample(arm, 30.0, seed=seed) for arm in all_arms() for seed in (1, 2)]

    assert uneven(taken(*whole)) is None
    assert uneven(taken(*(one for one in whole if (one.arm, one.seed) != (Arm(OURS, 8, OWN), 2)))) == (
        "Not run on every seed: Nightcrew, 8 (its own)."
    )


def test_a_row_tells_the_spread_over_the_seeds() -> None:
    arm = Arm(ALL, 22, SDK)

    row = table(taken(sample(arm, 10.0, refused=40, lost=14), sample(arm, 14.0, seed=2, refused=40, lost=16)))

    assert "| all at once | SDK default | 12.0 | 10.0 to 14.0 | 2.0 | 3.0 | 14 to 16 of 23 | 0 | 40 |  |" in row


def test_time_is_compared_with_the_limit_only_where_nothing_is_lost() -> None:
    assert table(taken(sample(Arm(ALL, 22, UNTIL_DONE), 25.0))).endswith("| 1.25 |")


def test_claims_on_time_hold_by_what_was_measured() -> None:
    at_once, waves = Arm(ALL, 22, UNTIL_DONE), Arm(WAVES, 4, UNTIL_DONE)

    slow, quick = (taken(sample(at_once, seconds), sample(waves, 20.0)) for seconds in (50.0, 20.5))

    assert slower_at_once(slow).startswith("**held**")
    assert took_so_long(slow).startswith("**held**")
    assert slower_at_once(quick).startswith("**did not hold**")
    assert took_so_long(quick).startswith("**did not hold**")
    assert slower_at_once(taken()) == "not measured."


def test_a_spot_is_sweet_when_less_and_much_more_are_slower() -> None:
    def swept(semaphore: list[float]) -> str:
        pairs = zip(SWEEP, semaphore, strict=True)
        both = [(arms_of_the_sweep(places), seconds) for places, seconds in pairs]
        return sweet_spot(
            taken(*(made for (their, our), time in both for made in (sample(their, time), sample(our, 30))))
        )

    assert swept([70, 40, 20, 30, 50]).startswith("**held** for a semaphore, where 4 at a time is fastest (20.0 s)")
    assert swept([70, 40, 28, 27, 27]).startswith("**did not hold** for a semaphore, where 4, 8 and 22 at a time are")
    assert "**did not hold** for Nightcrew, where 1, 2, 4, 8 and 22" in swept([70, 40, 20, 30, 50])
    assert sweet_spot(taken()) == "not measured for a semaphore; not measured for Nightcrew."


@pytest.mark.parametrize(("few", "verdict"), [(1, "**held**: 1 in place of 40, 98 % fewer"), (10, "**did not hold**")])
def test_avoiding_429s_is_judged_for_both_kinds_of_retries(few: int, verdict: str) -> None:
    samples = [
        sample(Arm(way, places, retries), 20, refused=refused)
        for retries in (SDK, UNTIL_DONE)
        for way, places, refused in ((ALL, 22, 40), (SEMAPHORE, 4, few))
    ]

    assert avoided(taken(*samples)).startswith(verdict)


def test_the_goal_is_judged_by_the_worst_seed() -> None:
    ours = Arm(OURS, 22, OWN)

    kept = goal(taken(sample(ours, 23.0), sample(ours, 25.0, seed=2)))
    missed = goal(taken(sample(ours, 23.0), sample(ours, 26.4, seed=2, refused=2, requests=25)))

    assert "**1.14** times the limit that the headroom leaves, within the goal" in kept
    assert "**1.20** times the limit that the headroom leaves, above the goal" in missed
    assert missed.endswith("met 2 429s in 48 requests.")
