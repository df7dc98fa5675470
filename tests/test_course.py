"""The legal steps of a running plan: single promises, by hand."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from plans import BY, START, answered, failed, outline

from domain import places, settling
from domain.amendments import Amendment, Change
from domain.chart import Chart
from domain.course import Course
from domain.era import NOW, Era
from domain.events import timestamp
from domain.models import Outcome, Parked, Policy, RunStatus, Stopped, TaskError, TaskStatus, Try, WallKind
from domain.outlook import waits_of
from domain.progress import Ended, Outline, Progress
from domain.requests import Requests
from domain.settling import accepts
from domain.steering import Steering, TaskSteering
from domain.step import Draft, Step

SUCCEEDED, FAILED, TIMED_OUT = TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.TIMED_OUT
SKIPPED, CANCELLED, NOT_STARTED = TaskStatus.SKIPPED, TaskStatus.CANCELLED, TaskStatus.NOT_STARTED
REQUIRE, TOLERATE, OPTIONAL = Policy.REQUIRE, Policy.TOLERATE, Policy.OPTIONAL

RUNS = {  # interface.md, Edges: what a need ended as, and the policies under which its dependant runs all the same
    SUCCEEDED: {REQUIRE, TOLERATE, OPTIONAL},
    TIMED_OUT: {TOLERATE, OPTIONAL},
    FAILED: {OPTIONAL},
    SKIPPED: {OPTIONAL},
    CANCELLED: {OPTIONAL},
}


@pytest.mark.parametrize("status", RUNS)
@pytest.mark.parametrize("policy", Policy)
def test_an_edge_accepts_what_the_table_says(policy: Policy, status: TaskStatus) -> None:
    assert accepts(policy, status) == (policy in RUNS[status])


class Run:
    """A course and how far it has come."""

    def __init__(self, outline: Outline, era: Era = NOW) -> None:
        self.course = Course(outline, era=era)
        self.now = START
        self.progress = Progress()
        self.take(self.course.begin(self.now))

    def take(self, step: Step) -> Step:
        self.progress = step.progress
        return step

    def launch(self) -> tuple[str, ...]:
        return self.take(self.course.launch(self.progress, self.now)).starts

    def result(self, id: str, outcome: Outcome) -> Step:
        return self.take(self.course.result(self.progress, id, outcome, self.now))

    def pass_time(self, time: timedelta) -> None:
        self.now += time
        self.take(self.course.wake(self.progress, self.now))

    def cancel(self) -> Step:
        return self.take(self.course.cancel(self.progress, self.now))

    def ask(self, verb: str, asked: Steering) -> Step:
        return self.take(getattr(Requests(self.course.chart), verb)(self.progress, asked, self.now))

    def change(self, outline: Outline) -> None:
        base = self.course.chart.plan_ref
        amendment = Amendment(plan_ref=f"{base}+", base_ref=base, outline=outline)
        self.ask("change", Change(by="someone", amendment=amendment))
        self.course.adopt(amendment)

    def end_of(self, id: str) -> TaskStatus:
        return self.progress.ended[id].status


def test_ready_tasks_start_in_plan_order_past_those_whose_agent_is_busy() -> None:
    plan = outline({"a": {}, "b": {}, "c": {}}, max_concurrency=2, ant=1)
    other = plan.tasks[2].model_copy(update={"agent": "bee"})
    run = Run(plan.model_copy(update={"tasks": (*plan.tasks[:2], other)}))

    assert run.launch() == ("a", "c")
    run.result("a", answered())
    assert run.launch() == ("b",)


def test_a_wall_without_an_end_is_probed_after_1_2_4_8_15_minutes() -> None:
    """And from the start again after an answer has come through."""
    run = Run(outline({"a": {}}))
    delays = []

    for _ in range(7):
        assert run.launch() == ("a",)
        run.result("a", Parked(why="wall", what="full", wall="overload"))
        wake = run.course.next_wake(run.progress)
        assert wake is not None
        delays.append(wake - run.now)
        run.pass_time(wake - run.now - timedelta(microseconds=1))
        assert run.launch() == ()
        run.pass_time(timedelta(microseconds=1))

    assert [delay // timedelta(minutes=1) for delay in delays] == [1, 2, 4, 8, 15, 15, 15]
    run.launch()
    run.result("a", answered())
    assert not run.progress.barriers


@pytest.mark.parametrize(
    ("kind", "until"), [("overload", None), ("rate", timedelta(minutes=1)), ("pool", timedelta(seconds=1))]
)
def test_a_task_waits_since_it_met_the_first_of_its_walls(kind: WallKind, until: timedelta | None) -> None:
    """However often it is sent, and meets one again; after an attempt of its own it waits from then on."""
    run = Run(outline({"a": {}}))

    def meet(*tries: Try) -> str | None:
        run.launch()
        end = None if until is None else run.now + until
        run.result("a", Parked(why="wall", what="full", wall=kind, until=end, tries=tries))
        return waits_of(run.course.chart, run.progress)["a"].since

    began = run.now
    for _ in range(3):
        assert meet() == timestamp(began)
        wake = run.course.next_wake(run.progress)
        assert wake is not None
        run.pass_time(wake - run.now)

    error = TaskError(type="Unavailable", message="no", attempt=1)
    assert meet(Try(attempt=1, error=error, at=run.now)) == timestamp(run.now)
    assert run.now > began


@pytest.mark.parametrize("named", [(), ("a",)])
def test_who_waits_for_a_busy_agent_may_be_sent_again(named: tuple[str, ...]) -> None:
    """All of them at once: the bank is asked, not the provider. The tasks of other agents never waited."""
    plan = outline({"a": {}, "b": {}, "c": {}}, ant=2)
    other = plan.tasks[2].model_copy(update={"agent": "bee"})
    run = Run(plan.model_copy(update={"tasks": (*plan.tasks[:2], other)}))
    assert run.launch() == ("a", "b", "c")
    for id in "a", "b":
        run.result(id, Parked(why="wall", what="busy", wall="pool", until=START + timedelta(hours=1)))
    assert run.launch() == ()

    run.ask("retry", TaskSteering(by="someone", tasks=named))

    assert run.launch() == ("a", "b")


QUOTA = Parked(why="wall", what="the quota is used up", wall="rate", until=START + timedelta(seconds=10))


@pytest.mark.parametrize("kind", ["overload", "model"])
def test_an_end_that_was_told_of_something_else_does_not_end_a_wall_without_one(kind: WallKind) -> None:
    """E4, E15: a task that our own quota has sent back waits with the others, and one asks after a minute."""
    run = Run(outline({"first": {}, "a": {}, "b": {}, "c": {}}))
    assert run.launch() == ("first", "a", "b", "c")
    run.result("first", answered())
    run.result("a", Parked(why="wall", what="down", wall=kind))
    run.pass_time(timedelta(seconds=5))

    run.result("b", QUOTA)
    run.result("c", QUOTA)

    (wall,) = run.progress.barriers.values()
    assert (wall.kind, wall.told, wall.until) == (kind, False, START + timedelta(minutes=1))
    assert {wait.until for wait in run.progress.parked.values()} == {wall.until}
    run.pass_time(timedelta(seconds=54))
    assert run.launch() == ()
    run.pass_time(timedelta(seconds=1))
    assert run.launch() == ("a",)


def test_who_was_sent_to_a_wall_tells_what_stands_there_now() -> None:
    """The one that finds out is believed: the provider takes calls again, and the quota is what is missing."""
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="down", wall="overload"))
    run.pass_time(timedelta(minutes=1))
    assert run.launch() == ("a",)

    run.result("a", QUOTA.model_copy(update={"until": START + timedelta(minutes=2)}))

    (wall,) = run.progress.barriers.values()
    assert (wall.kind, wall.told) == ("rate", True)


def test_a_history_of_an_earlier_release_goes_on_with_its_own_walls() -> None:
    """What was told last ended them: its timers are set by that."""
    run = Run(outline({"a": {}, "b": {}}), Era(before_0_4=True))
    run.launch()
    run.result("a", Parked(why="wall", what="down", wall="overload"))

    run.result("b", QUOTA)

    (wall,) = run.progress.barriers.values()
    assert (wall.kind, wall.told) == ("rate", True)


def test_a_wall_with_a_known_end_is_not_asked_before_it() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="full", until=START + timedelta(hours=6)))

    run.pass_time(timedelta(hours=6) - timedelta(seconds=1))
    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING
    run.pass_time(timedelta(seconds=1))
    assert run.launch() == ("a",)


def test_a_told_end_that_has_passed_is_awaited_for_a_moment() -> None:
    """The worker that heard it has a slow clock: it would turn the task back as fast as it is started."""
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="full", wall="rate", until=START - timedelta(hours=1)))

    run.pass_time(timedelta(seconds=1))
    assert run.launch() == ()
    run.pass_time(timedelta(seconds=1))
    assert run.launch() == ("a",)


def test_a_task_that_is_to_ask_at_one_wall_asks_at_another_that_came_meanwhile() -> None:
    """Else each wall would wait for the other, for ever."""
    run = Run(outline({"a": {}, "b": {}}, max_concurrency=2))
    run.launch()
    run.result("a", Parked(why="wall", what="full", wall="overload"))
    run.pass_time(timedelta(minutes=1))
    run.result("b", Parked(why="wall", what="withdrawn", wall="spend"))
    run.ask("skip", TaskSteering(by="someone", tasks=("b",)))
    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING, "it is sent to one wall, and the other still stands"

    run.pass_time(timedelta(minutes=1))

    assert run.launch() == ("a",)
    run.result("a", answered())
    assert run.course.status(run.progress) is RunStatus.PARTIAL


def test_whoever_says_that_a_wall_is_gone_sends_one_task() -> None:
    """The others come when it has got through; when it has not, the wall stands again for all of them."""
    run = Run(outline({"a": {}, "b": {}, "c": {}}))
    run.launch()
    for id in "abc":
        run.result(id, Parked(why="wall", what="withdrawn", wall="spend", until=START + timedelta(days=9)))

    run.ask("retry", TaskSteering(by="someone"))
    assert run.launch() == ("a",)
    run.result("a", Parked(why="wall", what="withdrawn", wall="spend"))
    assert run.launch() == ()
    run.ask("retry", TaskSteering(by="someone"))
    assert run.launch() == ("a",)
    run.result("a", answered())

    assert run.launch() == ("b", "c")


def test_a_parked_task_holds_no_place() -> None:
    run = Run(outline({"a": {}, "b": {}}, max_concurrency=1))
    assert run.launch() == ("a",)

    run.result("a", Parked(why="wall", what="full", until=START + timedelta(hours=1)))

    assert run.launch() == ("b",)


def test_a_task_that_met_the_pause_waits_for_the_resume_and_not_for_a_time() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.ask("pause", BY)
    run.result("a", Parked(why="pause", what="the run is paused"))
    run.pass_time(timedelta(days=1))
    assert (run.launch(), run.course.status(run.progress)) == ((), RunStatus.PAUSED)

    run.ask("resume", BY)

    assert run.launch() == ("a",)


def test_a_task_whose_pause_is_already_over_is_ready_at_once() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="pause", what="the run is paused"))

    assert run.launch() == ("a",)


def test_a_task_learns_what_each_of_its_needs_came_to() -> None:
    run = Run(outline({"good": {}, "late": {}, "end": {"good": REQUIRE, "late": TOLERATE}}))
    run.launch()
    run.result("good", answered())
    run.result("late", failed(TIMED_OUT))

    good, late = run.course.inputs(run.progress, "end")

    assert (good.task, good.status, good.ref, good.why) == ("good", SUCCEEDED, answered().output_ref, None)
    assert (late.task, late.status, late.ref, late.why) == ("late", TIMED_OUT, None, "it broke")


def test_cancel_ends_what_waits_and_leaves_what_is_at_work_to_its_own_word() -> None:
    run = Run(outline({"busy": {}, "wall": {}, "ready": {}, "later": {"busy": OPTIONAL}}, max_concurrency=2))
    run.launch()
    run.result("wall", Parked(why="wall", what="full"))

    run.cancel()
    assert {id: end.status for id, end in run.progress.ended.items()} == {
        "wall": CANCELLED,
        "ready": NOT_STARTED,
        "later": NOT_STARTED,
    }
    assert run.launch() == ()
    run.result("busy", answered())

    assert (run.end_of("busy"), run.end_of("later")) == (SUCCEEDED, NOT_STARTED)
    assert run.course.status(run.progress) is RunStatus.CANCELLED


def test_a_task_that_had_started_is_never_called_not_started() -> None:
    """It met a wall, the wall passed, it is ready again and waits for a place: then the run is cancelled."""
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="full", until=START + timedelta(minutes=1)))
    run.pass_time(timedelta(minutes=1))

    run.cancel()

    assert run.end_of("a") is CANCELLED


def test_a_task_that_its_worker_gave_back_is_ready_at_once() -> None:
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="worker", what="the worker is going down"))

    assert run.launch() == ("a",)


def test_a_task_that_its_worker_refused_until_a_time_waits_for_it() -> None:
    """Else a worker that cannot do it would be asked again and again, as fast as it can refuse."""
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="worker", what="another store", until=START + timedelta(minutes=1)))

    assert run.launch() == ()
    assert run.course.status(run.progress) is RunStatus.WAITING
    run.pass_time(timedelta(minutes=1))
    assert run.launch() == ("a",)


# --- sizes ---


def test_one_launch_carries_no_more_inputs_than_one_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: the rest is held back for the next one; a single task with more inputs than that starts alone."""
    monkeypatch.setattr(places, "INPUTS_AT_ONCE", 5)
    sources: dict[str, dict[str, Policy]] = {f"s{i}": {} for i in range(9)}
    two = dict.fromkeys(["s0", "s1"], REQUIRE)
    run = Run(outline({**sources, "a": two, "b": two, "c": two, "wide": dict.fromkeys(sources, REQUIRE)}))
    for id in run.launch():
        run.result(id, answered())

    launches = [run.take(run.course.launch(run.progress, run.now)) for _ in range(4)]

    assert [(step.starts, step.held_back) for step in launches] == [
        (("a", "b"), True),
        (("c",), True),
        (("wide",), False),
        ((), False),
    ]


@pytest.mark.parametrize(("places", "at_once"), [(1, 1), (4, 4), (30, 4), (39, 4), (50, 5), (500, 50)])
def test_a_run_starts_no_more_than_the_server_keeps_up_with(places: int, at_once: int) -> None:
    """The rest is held back until starts are confirmed, and is then let go one for one; without a count, nothing is."""
    run = Run(outline({f"t{i:03}": {} for i in range(600)}, max_concurrency=places))
    everything = run.course.launch(run.progress, run.now)

    first = run.take(run.course.launch(run.progress, run.now, 0))
    none = run.take(run.course.launch(run.progress, run.now, at_once))
    one = run.take(run.course.launch(run.progress, run.now, at_once - 1))

    assert (len(everything.starts), everything.held_back) == (places, False)
    assert first.starts == everything.starts[:at_once]
    assert first.held_back is none.held_back is one.held_back is (places > at_once)
    assert none.starts == ()
    assert one.starts == everything.starts[at_once : at_once + 1]


def test_of_5_000_that_could_start_no_more_are_open_than_there_are_places() -> None:
    """The server refuses the 2,001st child of a run for ever (F9): at most 500 are open, whatever ends meanwhile."""
    run = Run(outline({f"t{i:04}": {} for i in range(5_000)}, max_concurrency=500))
    most = 0

    for _ in range(12):
        run.launch()
        most = max(most, len(run.progress.active))
        for id in [*run.progress.active][:450]:
            run.result(id, answered())

    assert most == 500


def test_a_chain_of_10_000_whose_first_fails_settles_in_one_step() -> None:
    """Without recursion (F8), and every link names the first as the cause."""
    needs: dict[str, dict[str, Policy]] = {f"t{i}": {f"t{i - 1}": REQUIRE} if i else {} for i in range(10_000)}
    run = Run(outline(needs))
    run.launch()

    run.result("t0", failed())

    assert run.course.census(run.progress).skipped == 9_999
    assert {end.cause for end in run.progress.ended.values()} == {"t0"}
    assert run.course.status(run.progress) is RunStatus.FAILED


def test_a_wide_plan_judges_every_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One source, 2,000 in the middle, one sink: judged when the last need has ended, not at every end (F7)."""
    middle: dict[str, dict[str, Policy]] = {f"m{i}": {"source": REQUIRE} for i in range(2_000)}
    run = Run(outline({"source": {}, **middle, "sink": dict.fromkeys(middle, OPTIONAL)}, max_concurrency=5_000))
    judged: Counter[str] = Counter()
    judge = settling._skipped

    def counting(chart: Chart, draft: Draft, id: str) -> Ended | None:
        judged[id] += 1
        return judge(chart, draft, id)

    monkeypatch.setattr(settling, "_skipped", counting)
    while starts := run.launch():
        for id in starts:
            run.result(id, answered())

    assert run.course.status(run.progress) is RunStatus.COMPLETED
    assert judged == Counter([*middle, "sink"])


ANN = TaskSteering(by="ann", note="it hangs", tasks=("a",))


def told(step: Step) -> list[tuple[str, dict[str, object]]]:
    return [(str(event.type), dict(event.data)) for event in step.events]


def test_who_skips_a_task_at_work_is_told_at_once_and_with_its_end() -> None:
    run = Run(outline({"a": {}}))
    run.launch()

    asked = run.ask("skip", ANN)
    ended = run.result("a", Stopped(why="cut"))

    assert told(asked) == [("run.changed", {"stops": ["a"], "by": "ann", "note": "it hangs"})]
    (kind, data), *_ = told(ended)
    assert (kind, data["by"], data["note"], data["reason"]) == (
        "task.skipped",
        "ann",
        "it hangs",
        "skipped by ann: it hangs",
    )
    assert type(run.progress.ended["a"]) is Ended


def test_who_has_a_wall_asked_at_is_told() -> None:
    """Nothing is done again, and one task is sent to find out."""
    run = Run(outline({"a": {}}))
    run.launch()
    run.result("a", Parked(why="wall", what="down", wall="unreachable"))

    asked = run.ask("retry", ANN)

    assert told(asked)[0] == ("run.changed", {"asks_at": ["the account"], "by": "ann", "note": "it hangs"})


def test_a_history_of_an_earlier_release_tells_nothing_more() -> None:
    """Events are written in batches when they are due: one more would be one more command."""
    run = Run(outline({"a": {}}), Era(before_0_4=True))
    run.launch()

    assert told(run.ask("skip", ANN)) == []
