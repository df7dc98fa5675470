"""Plans that the simulator proposes: a goal that lists names becomes a task for each of them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from simulator.listing import names_in
from simulator.planning import ASPECTS, proposed
from simulator.prompt import read_prompt
from simulator.script import Then

CITIES = ["Oslo", "Bergen", "Turku", "Malmö", "New York", "Rio de Janeiro", "Newcastle upon Tyne", "Nice"]


def plan_for(goal: str) -> dict[str, Any]:
    payload = json.dumps({"goal": goal, "agents": [{"name": "researcher"}, {"name": "writer"}]})
    text = f'<payload of="payload" mark="m">\n{payload}\n</payload mark="m">'
    asked = {"model": "claude-haiku-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    made: dict[str, Any] = proposed(read_prompt(asked), Then(), random.Random(1))  # noqa: S311
    return made


def items(goal: str) -> list[str]:
    return [item for task in plan_for(goal)["tasks"] for item in task.get("items", [])]


@pytest.mark.parametrize(
    "goal",
    [
        f"Compare these 8 cities: {', '.join(CITIES)}.",
        f"Compare these 8 cities: {', '.join(CITIES[:-1])} and {CITIES[-1]} for a night bus of their own. Then stop.",
        f"Compare {', '.join(CITIES[:-1])}, and {CITIES[-1]}",
        "Which of these 8 cities has a night bus?\n\n" + "".join(f"- {city}\n" for city in CITIES),
        "Which has a night bus?\n" + "".join(f"{number}. {city},\n" for number, city in enumerate(CITIES, 1)),
    ],
)
def test_names_that_a_goal_lists_are_the_items(goal: str) -> None:
    assert items(goal) == CITIES


def test_names_need_no_capitals_after_a_colon() -> None:
    assert items("Check these systems: crm, billing and mail. Who is about to leave?") == ["crm", "billing", "mail"]


@pytest.mark.parametrize(
    "goal", ["Compare 4 cities of Norway for a night bus.", "Compare these 4 cities: Oslo, Bergen and Turku."]
)
def test_a_count_without_as_many_names_becomes_parts(goal: str) -> None:
    assert items(goal) == ["part 1", "part 2", "part 3", "part 4"]


@pytest.mark.parametrize(
    "goal",
    [
        "How could a small town run a night bus, what would it cost, and who would use it?",
        "Compare the five largest ports of Europe",
        "In Europe, Norway has many ferries of this kind, and so has Sweden.",
        "Say what follows: one long sentence with many words, and another long one with as many words.",
        "Say why these can be no ids at all: a[1], b{2}, c",
    ],
)
def test_clauses_are_no_names(goal: str) -> None:
    assert [task["id"] for task in plan_for(goal)["tasks"]] == [*ASPECTS, "weigh", "answer"]


def test_a_small_goal_without_a_list_is_one_task() -> None:
    assert [task["id"] for task in plan_for("Name three ferries.")["tasks"]] == ["answer"]


def test_a_name_that_is_listed_twice_is_one_item() -> None:
    assert names_in("Visit: Oslo, Bergen, Oslo") == ["Oslo", "Bergen"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["A ", "A, ", ": a, ", "- a\n", "Aa-"])
def test_a_long_goal_is_looked_through_in_no_time(word: str) -> None:
    names_in(word * (100_000 // len(word)))
