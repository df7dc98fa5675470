"""Chain and DAG as a benchmark: the same tasks with the same luck, and what its page says of the samples."""

from __future__ import annotations

from dag_arms import ARMS, CHAIN, CHAIN_OF_THREE, DAG, IN_TURN, ONE_CALL, chained, luck, shaped
from dag_page import Sample, verdicts

from runtime import ROOT
from simulator.script import read_script
from terminal.plans import read_plan

EXAMPLE = read_plan(str(ROOT / "examples/competitor-brief.yaml"), params={}, agents=None)


def test_a_chain_has_the_same_tasks_and_each_needs_the_one_before() -> None:
    tasks = EXAMPLE.plan.tasks

    links = list(chained(tasks))

    assert [task.prompt for task in links] == [task.prompt for task in tasks]
    for before, after, original in zip(links, links[1:], tasks[1:], strict=False):
        needed = [need.task for need in after.needs]
        assert before.id in needed
        assert set(needed) == {need.task for need in original.needs} | {before.id}
        assert len(needed) == len(set(needed))


def test_the_shapes_differ_in_order_alone() -> None:
    sizes = {arm: [len(made.plan.tasks) for made in shaped(EXAMPLE, arm)] for arm in ARMS}

    assert sizes == {ONE_CALL: [1, 1, 1], CHAIN_OF_THREE: [3], CHAIN: [7], IN_TURN: [7], DAG: [7]}
    assert [made.plan.max_concurrency for made in shaped(EXAMPLE, IN_TURN)] == [1]
    assert [made.plan for made in shaped(EXAMPLE, DAG)] == [EXAMPLE.plan]


def test_a_task_has_the_same_luck_in_every_shape() -> None:
    """The script names every task, so that nothing is left to the prompt; the simulator takes it."""
    rules = read_script(luck(EXAMPLE.plan.tasks, 1)).rules

    assert [rule.when.task for rule in rules] == [task.id for task in EXAMPLE.plan.tasks]
    assert luck(EXAMPLE.plan.tasks, 1) != luck(EXAMPLE.plan.tasks, 2)


def test_chain_and_dag_are_compared_seed_by_seed() -> None:
    figures = {ONE_CALL: (2, 400), CHAIN_OF_THREE: (6, 1600), CHAIN: (16, 4000), IN_TURN: (16, 3600), DAG: (8, 3600)}
    samples = [
        Sample(arm, seed, 7, seconds * seed, tokens, 0) for seed in (1, 2) for arm, (seconds, tokens) in figures.items()
    ]

    told = verdicts([*samples, Sample(CHAIN, 3, 7, 10, 4000, 0), Sample(DAG, 3, 7, 7, 3600, 0)])

    assert "**0.50** of the chain's of the same seed, 0.50 to 0.70; within the goal of 0.6 with 2 of 3 seeds." in told
    assert "Tokens: **0.90** of the chain's, within the goal of 1.0, and 1.00 of the same tasks" in told
    assert "A chain of three takes 3.0 times one call" in told
