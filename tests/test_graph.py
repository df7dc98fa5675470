"""The shape of a plan, also of long and wide ones."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from domain.graph import critical_path, cycles, dependants_of, final_tasks, in_order, layers, longest_ways
from domain.models import Need, Plan, Task


def plan(needs: dict[str, list[str]]) -> Plan:
    tasks = [
        Task(
            id=id,
            agent="a",
            prompt=("x",),
            needs=tuple(Need(task=need) for need in needed),
            timeout=timedelta(seconds=1),
            attempts=1,
            max_tokens=1,
        )
        for id, needed in needs.items()
    ]
    return Plan(name="p", max_concurrency=1, agents=(), tasks=tuple(tasks))


DIAMOND = {"end": ["left", "right"], "left": ["start"], "right": ["start"], "start": [], "alone": []}
CHAIN = {f"t{i}": [f"t{i - 1}"] if i else [] for i in range(10_000)}


def test_layers_go_by_depth_and_keep_plan_order() -> None:
    assert layers(plan(DIAMOND)) == [["start", "alone"], ["left", "right"], ["end"]]
    assert layers(plan({})) == []


def test_final_tasks_are_those_that_nobody_needs() -> None:
    assert final_tasks(plan(DIAMOND)) == ["end", "alone"]


def test_the_critical_path_is_the_longest_chain_by_time() -> None:
    seconds = {"start": 1, "left": 2, "right": 5, "end": 1, "alone": 6}
    durations = {id: timedelta(seconds=length) for id, length in seconds.items()}

    assert critical_path(plan(DIAMOND), durations) == (["start", "right", "end"], timedelta(seconds=7))
    assert critical_path(plan({}), {}) == ([], timedelta())


def test_the_longest_way_to_a_task_leaves_out_what_comes_after_it() -> None:
    seconds = {"start": 1, "left": 2, "right": 5, "end": 1, "alone": 6}

    ways = longest_ways(plan(DIAMOND), {id: timedelta(seconds=length) for id, length in seconds.items()})

    assert {id: end.total_seconds() for id, end in ways.ends.items()} == {
        "start": 1,
        "alone": 6,
        "left": 3,
        "right": 6,
        "end": 7,
    }
    assert (ways.to("left"), ways.to("end"), ways.to("alone")) == (
        ["start", "left"],
        ["start", "right", "end"],
        ["alone"],
    )


def test_the_other_direction_of_the_edges() -> None:
    assert dependants_of(DIAMOND) == {
        "end": [],
        "left": ["end"],
        "right": ["end"],
        "start": ["left", "right"],
        "alone": [],
    }


def test_a_graph_without_cycles_has_none() -> None:
    assert cycles(DIAMOND) == []


def test_every_knot_is_told_once_by_a_shortest_cycle() -> None:
    needs = {
        "free": ["b"], "a": ["b"], "b": ["c"], "c": ["d", "a"], "d": ["a"],
        "x": ["y"], "y": ["x", "b"], "self": ["self", "a"], "sink": [],
    }  # fmt: skip

    assert cycles(needs) == [["a", "b", "c"], ["x", "y"], ["self"]]


def test_a_chain_of_ten_thousand_needs_no_recursion() -> None:
    backwards = dict(reversed(CHAIN.items()))

    assert cycles(backwards) == []
    assert len(layers(plan(backwards))) == 10_000
    assert len(critical_path(plan(backwards), {"t5": timedelta(seconds=1)})[0]) >= 6


def test_a_cycle_of_ten_thousand_is_found() -> None:
    (cycle,) = cycles({**CHAIN, "t0": ["t9999"]})

    assert len(cycle) == 10_000
    assert cycle[:2] == ["t0", "t9999"]


GRAPHS = st.integers(1, 8).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3, unique=True), min_size=n, max_size=n)
)


@given(GRAPHS)
def test_cycles_are_real_and_their_knots_are_apart(edges: list[list[int]]) -> None:
    needs = {str(id): [str(need) for need in needed] for id, needed in enumerate(edges)}

    found = cycles(needs)

    for cycle in found:
        following = [*cycle[1:], cycle[0]]
        assert all(need in needs[id] for id, need in zip(cycle, following, strict=True))
        assert len(set(cycle)) == len(cycle)
    members = [id for cycle in found for id in cycle]
    assert len(set(members)) == len(members)
    assert bool(found) == (len(in_order(needs)) < len(needs))


@given(GRAPHS)
def test_the_order_respects_every_need(edges: list[list[int]]) -> None:
    needs = {str(id): [str(need) for need in needed if need < id] for id, needed in enumerate(edges)}

    order = in_order(needs)

    assert sorted(order) == sorted(needs)
    assert all(order.index(need) < order.index(id) for id, needed in needs.items() for need in needed)
