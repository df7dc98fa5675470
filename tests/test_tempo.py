"""The tempo of a run: its speed-up, where the time went, and how many places to give it next time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from conftest import Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import START, Voyage, answered, failed, in_vain, outline, outlines, plan_of
from told import ToldRun

from domain.graph import Needs
from domain.models import Approval, Grows, Outcome, Pace, Parked, Policy, RunStatus, Stopped
from domain.picture import Picture
from domain.progress import Outline
from domain.report import Concurrency
from domain.requests import Requests
from domain.sizing import SLACK, Layout
from domain.steering import Steering, TaskSteering
from terminal.show_tempo import tempo_lines

REQUIRE = Policy.REQUIRE
PARTS = ("critical_path_s", "quota_wait_s", "slot_wait_s", "person_wait_s", "other_s")


class Told(ToldRun):
    """A run by hand: things happen when the test says so, in seconds since its start."""

    def at(self, seconds: float) -> Told:
        self.now = START + timedelta(seconds=seconds)
        return self

    def ask(self, verb: str, *tasks: str) -> None:
        asked = TaskSteering(by="ann", tasks=tasks) if tasks else Steering(by="ann")
        self.take(getattr(Requests(self.course.chart), verb)(self.progress, asked, self.now))

    def wake(self) -> None:
        self.take(self.course.wake(self.progress, self.now))

    def ends(self, *ids: str, outcome: Outcome | None = None) -> None:
        """These end now, and what can start does."""
        for id in ids:
            self.result(id, outcome or answered())
        self.launch()

    def finish(self) -> None:
        self.take(self.course.finish(self.progress, self.now))

    @property
    def concurrency(self) -> Concurrency:
        return self.picture.report({}, now=self.now).concurrency

    @property
    def went(self) -> dict[str, float]:
        """The parts that took time."""
        return {part: length for part, length in self.concurrency.serial.model_dump().items() if length}


def asking(needs: dict[str, dict[str, Policy]], *tasks: str) -> Outline:
    made = outline(needs)
    asked = [task.model_copy(update={"approval": Approval()}) if task.id in tasks else task for task in made.tasks]
    return made.model_copy(update={"tasks": tuple(asked)})


def wall(kind: Any, seconds: float, **more: Any) -> Parked:
    return Parked(why="wall", what="full", wall=kind, until=START + timedelta(seconds=seconds), **more)


def many(count: int) -> dict[str, dict[str, Policy]]:
    return {f"t{number}": {} for number in range(count)}


# --- of any run ---


@settings(max_examples=120, deadline=None)
@given(outlines(), st.data())
def test_at_every_moment_the_parts_add_up_and_the_setting_is_one(outline: Outline, data: st.DataObject) -> None:
    """Whatever happens: pauses, walls, people, retries, attempts in vain, waits that are told longer than they were."""
    picture = Picture("run", plan_of(outline), simulated=True)

    for moment in Voyage(outline, data.draw).moments():
        picture.add(moment.step.events)
        later = moment.now + timedelta(seconds=data.draw(st.sampled_from([0, 0, 7.0004])))
        check(picture.report({}, now=later).document(), len(outline.tasks))


@settings(max_examples=40, deadline=None)
@given(outlines(), st.data())
def test_also_when_it_is_ended_from_outside_or_the_clock_is_slow(outline: Outline, data: st.DataObject) -> None:
    picture = Picture("run", plan_of(outline), simulated=True)
    moments = list(Voyage(outline, data.draw).moments())
    for moment in moments[: data.draw(st.integers(1, len(moments)))]:
        picture.add(moment.step.events)
    now = START + timedelta(seconds=data.draw(st.integers(-5, 1000)))

    check(picture.report({}, now=now).document(), len(outline.tasks))
    picture.close_from_outside(RunStatus.CANCELLED, data.draw(st.sampled_from([None, moment.now])), "terminated")
    check(picture.report({}, now=moment.now).document(), len(outline.tasks))


def check(document: dict[str, Any], tasks: int) -> None:
    serial, suggested = document["concurrency"]["serial"], document["concurrency"]["suggested"]
    assert list(serial) == list(PARTS)
    assert min(serial.values()) >= 0
    assert sum(serial.values()) == pytest.approx(max(0, document["duration_s"]), abs=1e-6)
    assert suggested is None or 1 <= suggested <= min(tasks, 500)
    speedup, peak = document["concurrency"]["speedup"], document["concurrency"]["peak"]
    assert (speedup is None) == (suggested is None)
    assert speedup is None or 0 <= speedup <= peak


# --- where the time went ---


def test_a_chain_is_work_from_end_to_end() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}, "aside": {}}))
    told.launch()
    told.at(3).ends("aside")
    told.at(10).ends("a")
    told.at(15).ends("b")
    told.at(15.5).finish()

    assert told.went == {"critical_path_s": 15.0, "other_s": 0.5}
    assert told.concurrency.speedup == round(18 / 15.5, 2)


def test_only_the_chain_that_led_to_the_end_counts() -> None:
    """Of two needs the one that ended last; that the other waited for a person delayed nobody."""
    told = Told(asking({"slow": {}, "asked": {}, "end": {"slow": REQUIRE, "asked": REQUIRE}}, "asked"))
    told.launch()
    told.at(4).ask("approve", "asked")
    told.launch()
    told.at(5).ends("asked")
    told.at(9).ends("slow")
    told.at(12).ends("end")

    assert told.went == {"critical_path_s": 12.0}


def test_a_place_that_was_missing_is_a_slot() -> None:
    """So is an instance of the agent, and the end of a wave."""
    waves = outline(many(2), max_concurrency=1).model_copy(update={"mode": Pace.WAVES})
    for made in outline(many(2), max_concurrency=1), outline(many(2), ant=1), waves:
        told = Told(made)
        told.launch()
        told.at(4).ends("t0")
        told.at(10).ends("t1")

        assert told.went == {"critical_path_s": 6.0, "slot_wait_s": 4.0}


def test_a_wait_for_approval_and_a_pause_are_people() -> None:
    told = Told(asking({"a": {}}, "a"))
    told.at(10).ask("approve", "a")
    told.ask("pause")
    told.at(15).ask("resume")
    told.launch()
    told.at(20).ends("a")

    assert told.went == {"critical_path_s": 5.0, "person_wait_s": 15.0}
    assert told.concurrency.speedup == 1.0, "one at a time would have waited for them, too"


def test_a_task_that_met_the_pause_at_the_door_waited_for_a_person() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.ask("pause")
    told.at(2).ends("a", outcome=Parked(why="pause", what="the run is paused"))
    told.at(8).ask("resume")
    told.launch()
    told.at(9).ends("a")

    assert told.went == {"critical_path_s": 1.0, "person_wait_s": 8.0}


def test_what_is_done_again_waited_for_the_word_of_a_person() -> None:
    told = Told(outline({"a": {}, "b": {"a": REQUIRE}, "aside": {}}))
    told.launch()
    told.at(4).ends("a", outcome=failed())
    told.at(10).ask("retry", "a")
    told.launch()
    told.at(11).ends("aside")
    told.at(13).ends("a")
    told.at(15).ends("b")

    assert told.went == {"critical_path_s": 9.0, "person_wait_s": 6.0}


def test_a_need_that_was_done_again_later_is_taken_as_it_was() -> None:
    """`b` did without `a`; that `a` was done again while `b` was at work let nobody start."""
    told = Told(outline({"a": {}, "b": {"a": Policy.OPTIONAL}}))
    told.launch()
    told.at(4).ends("a", outcome=failed())
    told.at(5).ask("retry", "a")
    told.launch()
    told.at(9).ends("a")
    told.at(10).ends("b")

    assert told.went == {"critical_path_s": 10.0}


def test_the_waits_of_the_door_are_quota() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.at(10).ends("a", outcome=answered(waited_s=6.0))

    assert told.went == {"critical_path_s": 4.0, "quota_wait_s": 6.0}


def test_a_wait_cannot_be_longer_than_its_start() -> None:
    told = Told(outline({"a": {}, "b": {"a": Policy.OPTIONAL}}))
    told.at(3).launch()
    told.at(10).ends("a", outcome=failed(waited_s=60.0))
    told.at(11).ends("b")

    assert told.went == {"critical_path_s": 1.0, "quota_wait_s": 7.0, "slot_wait_s": 3.0}


KINDS = pytest.mark.parametrize(
    ("kind", "part"), [("rate", "quota_wait_s"), ("spend", "other_s"), ("overload", "other_s")]
)


@KINDS
def test_a_wall_is_quota_if_it_is_one_of_the_rate(kind: Any, part: str) -> None:
    """From the start on that met it: that one brought nothing."""
    told = Told(outline({"a": {}}).model_copy(update={"models": {"ant": "m"}}))
    told.launch()
    told.at(2).ends("a", outcome=wall(kind, 10))
    told.at(10).wake()
    told.launch()
    told.at(12).ends("a")

    assert told.went == {"critical_path_s": 2.0, part: 10.0}


@KINDS
def test_a_task_that_could_have_started_waited_for_the_wall_while_it_stood(kind: Any, part: str) -> None:
    told = Told(outline({"met": {}, "next": {}}, max_concurrency=1).model_copy(update={"models": {"ant": "m"}}))
    told.launch()
    told.at(2).ends("met", outcome=wall(kind, 10))
    told.at(10).wake()
    told.launch()
    told.at(12).ends("met")
    told.at(15).ends("next")

    assert told.went == {"critical_path_s": 3.0, "slot_wait_s": 4.0, part: 8.0}


def test_attempts_in_vain_before_a_wall_were_work() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    tries = tuple(attempt.model_copy(update={"at": START + timedelta(seconds=3)}) for attempt in in_vain(1))
    told.at(5).ends("a", outcome=wall("rate", 10, tries=tries))
    told.at(10).wake()
    told.launch()
    told.at(11).ends("a")

    assert told.went == {"critical_path_s": 4.0, "quota_wait_s": 7.0}


def test_a_wall_of_one_task_in_an_old_run_was_its_rate() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.at(2).ends("a", outcome=Parked(why="wall", what="full", until=START + timedelta(seconds=10)))
    told.at(10).wake()
    told.launch()
    told.at(11).ends("a")

    assert told.went == {"critical_path_s": 1.0, "quota_wait_s": 10.0}


def test_what_a_lost_worker_held_is_other() -> None:
    told = Told(outline({"a": {}}))
    told.launch()
    told.at(5).ends("a", outcome=Parked(why="worker", what="its worker was stopped"))
    told.at(9).ends("a")

    assert told.went == {"critical_path_s": 4.0, "other_s": 5.0}


def test_while_it_goes_the_task_that_is_longest_at_work_is_the_last() -> None:
    told = Told(outline({"a": {}, "b": {}, "c": {"a": REQUIRE}}, max_concurrency=2))
    told.at(1).launch()
    told.at(4).ends("a")
    told.at(9)

    assert told.went == {"critical_path_s": 8.0, "slot_wait_s": 1.0}
    assert told.concurrency.speedup == round((3 + 8 + 5) / 9, 2)


def test_what_is_at_work_goes_before_what_waits() -> None:
    told = Told(asking({"asked": {}, "a": {}}, "asked"))
    told.at(1).launch()
    told.at(4)

    assert told.went == {"critical_path_s": 3.0, "slot_wait_s": 1.0}


def test_parts_of_a_millisecond_are_not_rounded_up() -> None:
    """Three times 1.0006 s is 3.002 s, and three times 1.001 s is not."""
    told = Told(asking({"a": {}}, "a"))
    told.at(1.0006).ask("approve", "a")
    told.at(2.0012).launch()
    told.at(3.0018).ends("a")
    told.finish()

    check(told.picture.report({}, told.now).document(), tasks=1)


def test_before_a_task_has_ended_nothing_is_measured() -> None:
    told = Told(outline({"a": {}}))
    assert told.concurrency.serial.model_dump() == dict.fromkeys(PARTS, 0.0)
    told.launch()
    told.at(5)

    assert (told.concurrency.speedup, told.concurrency.suggested) == (None, None)
    assert told.went == {"critical_path_s": 5.0}


def test_a_wait_for_quota_is_told_only_when_there_was_one() -> None:
    told = Told(outline(many(3)))
    told.launch()
    outcomes: list[Outcome] = [answered(), answered(waited_s=1.23456), failed(waited_s=2)]

    steps = [told.course.result(told.progress, "t0", outcome, told.now) for outcome in outcomes]

    assert [step.events[-1].data.get("waited_s") for step in steps] == [None, 1.235, 2]


# --- how many places next time ---


def ran(made: Outline, rounds: Iterable[Iterable[str]], outcome: Outcome | None = None) -> Told:
    """A run in which these tasks end together, round by round of ten seconds."""
    told = Told(made)
    told.launch()
    for number, ids in enumerate(rounds, start=1):
        told.at(10 * number).ends(*ids, outcome=outcome)
    return told


@pytest.mark.parametrize("places", [1, 4, 6, 100])
def test_a_fan_out_and_its_join_want_a_place_for_each(places: int) -> None:
    """Whatever it ran with: the mean of 3.5 at once would take two rounds of what fits into one."""
    needs: dict[str, dict[str, Policy]] = {**many(6), "join": dict.fromkeys(many(6), REQUIRE)}
    wide = [*many(6)]
    rounds = [wide[first : first + places] for first in range(0, 6, places)]
    told = ran(outline(needs, max_concurrency=places), [*rounds, ["join"]])

    assert told.concurrency.suggested == 6
    assert told.concurrency.speedup == round(7 / (len(rounds) + 1), 2)


def test_a_long_task_is_not_known_to_be_long_before() -> None:
    """Of two places one would do the short ones while the other does the long one; but the run starts that one last."""
    told = Told(outline(many(4), max_concurrency=4))
    told.launch()
    told.at(10).ends("t0", "t1", "t2")
    told.at(30).ends("t3")

    assert told.concurrency.suggested == 4


def test_a_chain_wants_one_place() -> None:
    told = ran(outline({"a": {}, "b": {"a": REQUIRE}, "c": {"b": REQUIRE}}, max_concurrency=50), ["a", "b", "c"])

    assert (told.concurrency.suggested, told.concurrency.speedup) == (1, 1.0)


def test_no_more_places_than_the_agents_pool() -> None:
    told = ran(outline(many(6), ant=2), [["t0", "t1"], ["t2", "t3"], ["t4", "t5"]])

    assert told.concurrency.suggested == 2


def test_when_tasks_waited_for_quota_as_many_as_were_really_at_work_are_enough() -> None:
    """Six were let in, and eight seconds of ten each waited: 1.2 at once had done the same."""
    told = ran(outline(many(6)), [[*many(6)]], answered(waited_s=8.0))

    assert (told.concurrency.peak, told.concurrency.suggested) == (6, 2)
    assert told.went == {"critical_path_s": 2.0, "quota_wait_s": 8.0}


def test_what_asking_for_quota_takes_says_nothing_of_limits() -> None:
    """Half a second each of ten, where nothing is limited: three that can be at work want three places."""
    told = ran(outline(many(3)), [[*many(3)]], answered(waited_s=0.9))

    assert told.went == {"critical_path_s": 9.1, "quota_wait_s": 0.9}
    assert told.concurrency.suggested == 3


def test_waits_for_quota_that_held_nobody_up_change_nothing() -> None:
    """Until the limits were known, five of six waited; the sixth, which did not, came last."""
    told = Told(outline(many(6)))
    told.launch()
    told.at(10).ends(*[*many(6)][:5], outcome=answered(waited_s=5.0))
    told.at(20).ends("t5")

    assert (told.went, told.concurrency.suggested) == ({"critical_path_s": 20.0}, 6)


def test_what_came_before_and_after_the_waits_for_quota_does_not_thin_them_out() -> None:
    """Each of four was at work for six seconds of ten, 2.4 at once. That the join takes long is another matter."""
    told = Told(outline({**many(4), "join": dict.fromkeys(many(4), REQUIRE)}))
    told.launch()
    told.at(10).ends(*many(4), outcome=answered(waited_s=4.0))
    told.at(50).ends("join")

    assert told.concurrency.suggested == 3


def test_a_wall_of_the_rate_says_that_fewer_would_do() -> None:
    """Bursts of four, and a wall of 40 s after each: less than one at once came through."""
    made = outline(many(8), max_concurrency=4).model_copy(update={"models": {"ant": "m"}})
    told = Told(made)
    told.launch()
    told.at(5).ends("t0", "t1", "t2")
    told.at(6).ends("t3", outcome=wall("rate", 46))
    for id in "t4", "t5", "t6":
        told.at(7).ends(id, outcome=wall("rate", 46))
    told.at(46).wake()
    told.launch()
    told.at(51).ends("t3", "t4", "t5", "t6")
    told.at(56).ends("t7")

    assert told.concurrency.serial.quota_wait_s > 0
    assert told.concurrency.suggested == 1


def test_a_wait_for_quota_that_hardly_counts_changes_nothing() -> None:
    told = ran(outline(many(40)), [[*many(40)]], answered(waited_s=0.4))

    assert told.concurrency.suggested == 40


def test_tasks_that_did_not_come_to_work_are_taken_to_be_like_the_others() -> None:
    """After the first two of six, and when the run is cancelled then."""
    told = ran(outline(many(6), max_concurrency=2), [["t0", "t1"]])
    assert told.concurrency.suggested == 6

    told.take(told.course.cancel(told.progress, told.now))
    told.ends("t2", "t3", outcome=Stopped(why="the run was cancelled"))
    told.finish()

    assert told.concurrency.suggested == 6


def test_people_who_took_their_time_do_not_count() -> None:
    """But what was done meanwhile does: nothing is faster than as many at once as there were."""
    for answer in 0, 10_000:
        told = Told(asking({**many(2), "asked": {}}, "asked"))
        told.launch()
        told.at(10).ends("t0", "t1")
        told.at(10 + answer).ask("approve", "asked")
        told.launch()
        told.at(20 + answer).ends("asked")

        assert (told.concurrency.speedup, told.concurrency.suggested) == (1.5, 3)


def planned_first(needs: dict[str, dict[str, Policy]]) -> Told:
    """A run whose plan was made by its first task."""
    told = Told(outline({"plan": {}, **{id: {"plan": REQUIRE, **needed} for id, needed in needs.items()}}))
    planner, *rest = told.picture.plan.tasks
    grown = planner.model_copy(update={"grows": Grows(kind="plan")})
    told.picture.plan = told.picture.plan.model_copy(update={"tasks": (grown, *rest)})
    told.launch()
    return told


def test_a_planner_that_took_long_does_not_make_the_tasks_of_its_plan_look_short() -> None:
    """Half as many places would take ten seconds longer: little beside the planner, and twice as long for the rest."""
    told = planned_first(many(6))
    told.at(500).ends("plan")
    told.at(510).ends(*many(6))

    assert told.concurrency.suggested == 6


def test_a_planner_that_waited_for_quota_does_not_thin_out_the_waits_of_its_plan() -> None:
    """Each of four was at work for six seconds of ten, 2.4 at once, whatever the planner did before, alone."""
    told = planned_first(many(4))
    told.at(50).ends("plan", outcome=answered(waited_s=4.0))
    told.at(60).ends(*many(4), outcome=answered(waited_s=4.0))

    assert told.concurrency.suggested == 3


def test_while_there_is_a_planner_alone_one_place_is_enough() -> None:
    told = Told(outline({"plan": {}}))
    (planner,) = told.picture.plan.tasks
    grown = planner.model_copy(update={"grows": Grows(kind="plan")})
    told.picture.plan = told.picture.plan.model_copy(update={"tasks": (grown,)})
    told.launch()
    told.at(10).ends("plan")

    assert told.concurrency.suggested == 1


# --- the layout ---


@st.composite
def shapes(draw: Any) -> tuple[dict[str, list[str]], dict[str, float]]:
    made = draw(outlines())
    lengths = st.floats(0, 100)
    return {task.id: [*task.needs] for task in made.tasks}, {task.id: draw(lengths) for task in made.tasks}


@settings(max_examples=150, deadline=None)
@given(shapes())
def test_a_layout_takes_no_less_than_its_work_and_no_more_than_one_at_a_time(
    shape: tuple[Needs, dict[str, float]],
) -> None:
    needs, work = shape
    layout = Layout(needs, [*needs], work)
    whole = sum(work.values())

    assert layout.takes(1) == pytest.approx(whole)
    for places in range(1, len(work) + 1):
        assert layout.takes(places) * (1 + 1e-9) >= whole / places
        assert layout.takes(places) * (1 + 1e-9) >= layout.takes(len(work))
    fewest = layout.fewest_places(len(work))
    assert 1 <= fewest <= len(work)
    assert layout.takes(fewest) <= SLACK * layout.takes(len(work))
    assert fewest == 1 or layout.takes(fewest - 1) * (1 + 1e-9) > SLACK * layout.takes(len(work))


# --- in words ---


def test_the_lines_say_how_fast_where_the_time_went_and_what_to_set() -> None:
    told = ran(outline(many(4), max_concurrency=2), [["t0", "t1"], ["t2", "t3"]])
    assert [*tempo_lines(told.picture.report({}, told.now))] == [
        "2.0 times as fast as one at a time, with at most 2 tasks at once.",
        "Where the time went: work 10.0 s, places 10.0 s.",
    ]

    told.finish()

    first, _ = tempo_lines(told.picture.report({}, told.now))
    assert first.endswith(" at once. Next time: --max-concurrency 4.")


def test_there_is_nothing_to_say_of_one_task_or_before_the_first_has_ended_or_when_the_setting_was_right() -> None:
    alone, begun, right = (
        ran(outline(many(1)), [["t0"]]),
        ran(outline(many(2)), []),
        outline(many(2), max_concurrency=2),
    )
    told = ran(right, [["t0", "t1"]])
    told.finish()

    assert [*tempo_lines(alone.picture.report({}, alone.now))] == []
    assert [*tempo_lines(begun.picture.report({}, begun.now))] == []
    assert "Next time" not in "".join(tempo_lines(told.picture.report({}, told.now)))


# --- on the real server ---


async def test_the_report_of_a_run_says_where_its_time_went(crew: Bench) -> None:
    """One place for three: the third waits for a place while the others are at work. Each could have its own."""
    crew.simulator.script([], ttft=1)  # so long that none of them is all that counts, whatever the machine does
    run = await crew.start("""
max_concurrency: 1
defaults: {agent: hand}
tasks:
  - {id: a, prompt: One.}
  - {id: b, prompt: Two.}
  - {id: c, prompt: Three.}
  - {id: end, prompt: Join., needs: [a, b, c]}
""")

    report = await run.report()

    check(report.document(), tasks=4)
    serial = report.concurrency.serial
    assert serial.critical_path_s > 0
    assert serial.slot_wait_s > 0
    assert serial.person_wait_s == 0.0
    assert serial.quota_wait_s < 0.5, "there is no limit, and a busy machine takes its time"
    assert report.concurrency.suggested in {2, 3}, "by how long each took"
    assert report.concurrency.speedup is not None
    assert report.concurrency.speedup <= 1.0
