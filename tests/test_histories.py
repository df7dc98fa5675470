"""Runs that began under an earlier release go on under this one: their histories replay on the code of today."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from payloads import DATA_CONVERTER
from versioning import unversioned_runner
from workflows.quota import QuotaBank
from workflows.supervisor import SupervisorWorkflow
from workflows.task import TaskWorkflow

PLACE = Path(__file__).parent / "histories"
RECORDED = sorted(PLACE.glob("*/*.json.gz"))
RELEASES = sorted({file.parent.name for file in RECORDED})


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return content


async def replay(content: dict[str, Any]) -> None:
    replayer = Replayer(
        workflows=[SupervisorWorkflow, TaskWorkflow, QuotaBank],
        workflow_runner=unversioned_runner(),
        data_converter=DATA_CONVERTER,
        debug_mode=True,  # a replay that is slow has not failed
    )
    await replayer.replay_workflow(WorkflowHistory.from_json(content["id"], content["history"]))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}/{file.name.removesuffix('.json.gz')}")
async def test_a_recorded_history_replays(file: Path) -> None:
    """If it does not, put the new commands behind a field of the input: CONTRIBUTING.md says how."""
    await replay(read(file))


SINCE: dict[str, set[str]] = {
    "0.1.0": {"fan", "degraded", "failed", "paused", "cancelled", "continued", "cancelled-later", "walled", "waiting"}
    | {"slow"},
    "0.3.0": {"steered", "late", "refused"},
    "0.4.0": {"busy"},
    "0.7.0": {"grown", "changed", "replanned", "goal", "reviewed"},
    "0.8.0": {"inside"},
}
"""The kinds of runs, by the release that first had them."""


def parts_of(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def known_to(release: str, since: dict[str, set[str]]) -> set[str]:
    """What there is in a release of what came with it and with those before."""
    return {name for first, names in since.items() if parts_of(first) <= parts_of(release) for name in names}


@pytest.mark.parametrize("release", RELEASES)
def test_every_kind_of_run_was_recorded(release: str) -> None:
    """With a history of one of its tasks, and with more than one of its own where it goes on in new ones."""
    names = {file.name.removesuffix(".json.gz") for file in RECORDED if file.parent.name == release}
    kinds = {name.removesuffix("-task") for name in names if name.endswith("-task")}
    go_on = {"continued", "cancelled-later", "steered", "grown", "changed", "inside"}

    assert kinds == known_to(release, SINCE)
    assert not [kind for kind in kinds - go_on if kind not in names]
    assert not [kind for kind in kinds & go_on if not {f"{kind}-1", f"{kind}-2"} <= names]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("fan", '"append_events"', '"some_other_activity"'),
        ("fan", '"leaf[2]"', '"leaf[7]"'),
        ("continued-2", '"await_tasks"', '"some_other_activity"'),
        ("fan-task", '"run_agent"', '"some_other_activity"'),
    ],
)
async def test_a_doctored_history_does_not_replay(name: str, old: str, new: str) -> None:
    """The test can fail: a history that this code would not have made is noticed."""
    text = json.dumps(read(PLACE / "0.1.0" / f"{name}.json.gz"))
    assert old in text or old.replace('"', "/", 1) in text
    doctored = text.replace(old, new).replace(old.replace('"', "/", 1), new.replace('"', "/", 1))

    with pytest.raises(NondeterminismError):
        await replay(json.loads(doctored))
