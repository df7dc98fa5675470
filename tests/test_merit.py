"""What agents have done decides among those that fit: the better, then the cheaper, then the first."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from domain.merit import Merits, RunRecord, Work, WorkLine
from domain.models import Agent
from domain.registry import Registry
from domain.values import Usage
from terminal.show_agents import work_words


def agent(name: str, *capabilities: str) -> Agent:
    return Agent(name=name, version="1", capabilities=capabilities or ("x",), model="m", instructions="Do it.")


def line(name: str, tasks: int, succeeded: int, usd: str | None = "1", asked: tuple[str, ...] = ("x",)) -> WorkLine:
    cost = None if usd is None else Decimal(usd) * tasks
    work = Work(tasks=tasks, succeeded=succeeded, attempts=tasks, seconds=2.0 * tasks, cost_usd=cost)
    return WorkLine(agent=f"{name}@1", capabilities=asked, work=work)


def best(*lines: WorkLine, among: tuple[str, ...] = ("a", "b"), asked: tuple[str, ...] = ("x",)) -> str:
    merits = Merits([RunRecord(run="r", simulated=False, lines=lines)])
    return merits.best_first([agent(name) for name in among], asked)[0].name


def test_the_more_successful_is_chosen() -> None:
    assert best(line("a", 100, 60), line("b", 100, 90)) == "b"


def test_two_lucky_tasks_do_not_beat_a_hundred_good_ones() -> None:
    assert best(line("a", 2, 2), line("b", 100, 98)) == "b"
    assert best(line("a", 1, 0), line("b", 100, 50)) == "b"


def test_of_two_that_are_as_good_the_cheaper_then_the_first() -> None:
    assert best(line("a", 50, 50, "2"), line("b", 50, 50, "1")) == "b"
    assert best(line("a", 50, 50), line("b", 50, 50)) == "a"
    assert best() == "a"


def test_a_thousandth_of_success_is_not_worth_any_price() -> None:
    assert best(line("a", 1000, 999, "5"), line("b", 1000, 998, "1")) == "b"


def test_who_has_done_nothing_goes_between_the_good_and_the_bad() -> None:
    merits = Merits([RunRecord(run="r", simulated=False, lines=(line("a", 100, 40), line("b", 100, 90)))])

    ordered = merits.best_first([agent("a"), agent("new"), agent("b")], ["x"])

    assert [each.name for each in ordered] == ["b", "new", "a"]
    assert best(line("a", 100, 40), among=("new", "a")) == "a"  # nothing says that the new one is better


def test_what_was_asked_for_by_another_capability_does_not_count() -> None:
    lines = (line("a", 90, 90, asked=("y",)), line("a", 50, 10), line("b", 50, 40))

    assert best(*lines) == "b"
    assert best(*lines, asked=("y",)) == "a"


def test_simulated_runs_say_nothing_of_live_ones() -> None:
    records = [
        RunRecord(run="toy", simulated=True, lines=(line("a", 10, 10),)),
        RunRecord(run="real", simulated=False, lines=(line("a", 3, 1),)),
    ]

    assert Merits(records, simulated=True).of("a@1").tasks == 10
    assert Merits(records).of("a@1").succeeded == 1


def test_a_price_that_nobody_knows_is_neither_nothing_nor_in_the_way() -> None:
    assert best(line("a", 50, 50, None), line("b", 50, 50, "1")) == "a"
    assert (line("a", 1, 1, None).work + line("a", 1, 1).work).cost_usd is None


def test_lines_of_one_agent_add_up_by_capability() -> None:
    lines = (line("a", 2, 1, asked=("x", "y")), line("a", 1, 1, asked=("y",)), line("a", 4, 4, asked=()))
    merits = Merits([RunRecord(run="r", simulated=False, lines=lines)])

    by = {name: work.tasks for name, work in merits.by_capability("a@1").items()}

    assert by == {"x": 2, "y": 3, None: 4}
    assert (merits.of("a@1").tasks, merits.of("nobody").tasks) == (7, 0)


def test_verdicts_of_reviews_add_up_are_told_and_decide_nothing() -> None:
    """A task that was rejected once and then accepted has succeeded: that counts, as for those whom nobody reviews."""
    done = line("a", 2, 2).work
    judged = [done.model_copy(update={"reviewed": count, "accepted": accepted}) for count, accepted in ((3, 1), (2, 1))]
    records = [
        RunRecord(run=f"r{n}", simulated=False, lines=(WorkLine(agent="a@1", capabilities=("x",), work=work),))
        for n, work in enumerate(judged)
    ]
    merits = Merits([*records, RunRecord(run="r", simulated=False, lines=(line("b", 4, 4),))])

    assert (merits.of("a@1").reviewed, merits.of("a@1").accepted) == (5, 2)
    assert work_words(merits.of("a@1")) == "4 tasks, 100% well, 2.0 s and $1.00 each, 2 of 5 accepted in reviews"
    assert "reviews" not in work_words(merits.of("b@1"))
    assert [each.name for each in merits.best_first([agent("a"), agent("b")], ["x"])] == ["a", "b"]


def test_a_registry_goes_by_the_record_only_where_that_is_wanted_and_after_how_well_an_agent_fits() -> None:
    registry = Registry((agent("a", "x"), agent("b", "x"), agent("all", "x", "y")))
    merits = Merits(
        [RunRecord(run="r", simulated=False, lines=(line("b", 9, 9), line("a", 9, 1), line("all", 99, 99)))]
    )

    by_file, by_record = registry.agent_for(["x"]), replace(registry, merits=merits).agent_for(["x"])

    assert by_file is not None
    assert by_file.name == "a"
    assert by_record is not None
    assert by_record.name == "b"


def test_an_agent_of_the_plan_goes_before_any_record() -> None:
    merits = Merits([RunRecord(run="r", simulated=False, lines=(line("a", 99, 99),))])
    registry = replace(Registry((agent("a", "x"),)), merits=merits).extended([agent("own", "x")])

    chosen = registry.agent_for(["x"])

    assert chosen is not None
    assert chosen.name == "own"


def test_a_record_reads_what_a_later_version_writes() -> None:
    found = RunRecord.model_validate({"run": "r", "simulated": True, "verdicts": [1], "lines": [{"agent": "a@1"}]})

    assert found.lines[0].work == Work(tokens=Usage())


WORKS = st.lists(st.tuples(st.integers(0, 300), st.floats(0, 1), st.integers(0, 9)), min_size=1, max_size=6)


@given(WORKS)
def test_the_order_is_whole_and_does_not_depend_on_who_is_named_first_but_for_ties(
    works: list[tuple[int, float, int]],
) -> None:
    lines = tuple(line(f"n{n}", tasks, int(tasks * rate), str(usd)) for n, (tasks, rate, usd) in enumerate(works))
    merits = Merits([RunRecord(run="r", simulated=False, lines=lines)])
    agents = [agent(f"n{n}") for n in range(len(works))]

    ordered = merits.best_first(agents, ["x"])
    again = merits.best_first(ordered, ["x"])

    assert sorted(each.name for each in ordered) == sorted(each.name for each in agents)
    assert again == ordered
