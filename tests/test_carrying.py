"""What goes along to the next history. That it is all there, whatever happened before, `plans.Voyage` sees to."""

from __future__ import annotations

from datetime import timedelta

import pytest
from plans import CARRIED
from pydantic import ValidationError

from domain.carrying import Carried, packed, unpacked
from domain.models import TaskStatus
from domain.progress import Ended, Outline, OutlineTask, Progress

OUTLINE = Outline(
    max_concurrency=1,
    tasks=tuple(OutlineTask(id=id, agent="ant", timeout=timedelta(seconds=30), attempts=3) for id in "abcde"),
)
ENDED = {
    "c": Ended(status=TaskStatus.SUCCEEDED, ref=f"sha256:{'0f' * 32}", size=7),
    "a": Ended(status=TaskStatus.FAILED, why="it broke", cause="a"),
    "e": Ended(status=TaskStatus.SKIPPED, why="needs 'a', which ended FAILED", cause="a"),
    "b": Ended(
        status=TaskStatus.SUCCEEDED,
        ref=f"sha256:{'10' * 32}",
        size=9000,
        summary_ref=f"sha256:{'ff' * 32}",
        summary_size=500,
    ),
}
PROGRESS = Progress(ended=ENDED, unmet={"d": 1}, events=12)

IN_COLUMNS = (
    '[{"unmet":{"d":1},"events":12},{"numbers":[2,0,4,1],"columns":{"status":["SUCCEEDED","FAILED","SKIPPED","SUCCEEDED"],'
    '"ref":"Dw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8   EBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBA",'
    '"why":[null,"it broke","needs \'a\', which ended FAILED",null],"cause":[null,"a","a",null],"size":[7,0,0,9000],'
    '"summary_ref":"   __________________________________________8","summary_size":[0,0,0,500]}}]'
)
"""As the first release with columns has written it. Never changed: runs are open that carry such."""


def test_ends_in_columns_are_the_same_ends_in_the_same_order() -> None:
    carried = packed(OUTLINE, PROGRESS, columns_from=4)

    assert isinstance(carried, Carried)
    found = unpacked(OUTLINE, carried)
    assert found == PROGRESS
    assert list(found.ended) == list(ENDED)


def test_few_ends_go_as_they_are() -> None:
    assert packed(OUTLINE, PROGRESS, columns_from=5) is PROGRESS
    assert unpacked(OUTLINE, PROGRESS) is PROGRESS
    assert unpacked(OUTLINE, None) is None


def test_what_was_carried_in_columns_loads() -> None:
    assert unpacked(OUTLINE, CARRIED.validate_json(IN_COLUMNS)) == PROGRESS


def test_a_release_that_knows_no_columns_refuses_them() -> None:
    """It would find that nothing has ended, and pay for everything again. A run that stands still can be mended."""
    with pytest.raises(ValidationError):
        Progress.model_validate_json(CARRIED.dump_json(packed(OUTLINE, PROGRESS, columns_from=1)))
