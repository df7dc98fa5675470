"""Which playbook the simulator's planner chooses for a goal, among those that a planner is offered."""

from __future__ import annotations

from typing import Any

import pytest
from home import ROOT

from domain.planning.goals import plan_for
from domain.planning.playbooks import playbook_from_text
from domain.registry import registry_from_text
from simulator.choosing import chosen

REGISTRY = registry_from_text((ROOT / "agents.yaml").read_text(), file="agents.yaml")
PLAYBOOKS = [
    playbook_from_text(file.read_text(), file=file.name) for file in sorted((ROOT / "playbooks").glob("*.yaml"))
]
RECORDS = (
    "Gather the same facts of many items in one table. Items: Oslo, Bergen and Drammen. Fields: inhabitants, area."
)
OPEN = "An open question, to be researched from several angles: should we run a night bus?"
ANGLES = f"{OPEN} Angles: cost and use."


def offered(goal: str) -> Any:
    (task,) = plan_for(goal, registry=REGISTRY, playbooks=PLAYBOOKS, simulated=True).plan.tasks
    return task.payload["playbooks"]


@pytest.mark.parametrize(
    ("goal", "choice"),
    [
        (RECORDS, ("data-collection", {"items": "Oslo,Bergen,Drammen", "fields": "inhabitants,area"})),
        (OPEN, ("research-brief", {"question": OPEN})),
        (ANGLES, ("research-brief", {"question": ANGLES, "angles": "cost,use"})),
        ("One question is to be answered from several systems or sources, all at once.", None),
        ("Find out how a small town could run a night bus, what it costs and who would use it.", None),
        ("Name three ferries.", None),
        ("", None),
    ],
)
def test_a_playbook_is_chosen_by_the_words_of_its_when_and_only_with_all_it_must_be_told(
    goal: str, choice: tuple[str, dict[str, str]] | None
) -> None:
    assert chosen(goal, offered(goal)) == choice


def test_a_planner_is_offered_no_playbook_that_reads_files() -> None:
    """A goal has no files, and a planner that named some would choose what is read: docs/goals.md names the others."""
    named = {playbook["name"] for playbook in offered("Change the program.")}

    assert named == {"systems-report", "research-brief", "data-collection"}
    assert {playbook.name: playbook.brings for playbook in PLAYBOOKS if playbook.name not in named} == {
        "code-change": ("files",),
        "document-review": ("files",),
    }
    sentence = " ".join((ROOT / "docs" / "goals.md").read_text().split())
    assert "`code-change` and `document-review` are about files, and a goal has none" in sentence


@pytest.mark.parametrize("playbooks", [None, "x", [1], [{"name": "a"}], [{"name": "a", "when": OPEN, "params": []}]])
def test_what_is_no_list_of_playbooks_is_chosen_from_by_nobody(playbooks: Any) -> None:
    assert chosen(OPEN, playbooks) is None
