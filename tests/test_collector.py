"""Garbage in circles is found, and a plan that is taken in does not pay for it."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta

from conftest import eventually

from collector import OLDER, YOUNG, collecting_between


class Circle:
    """Nothing but a circle: it is garbage as soon as nobody else knows it."""

    def __init__(self) -> None:
        self.itself = self


async def test_what_has_become_old_is_collected_between_other_work() -> None:
    """An evicted workflow is such garbage: it has outlived many looks at what is new."""
    async with collecting_between(timedelta(milliseconds=10)):
        circle = Circle()
        gc.collect(1)  # now it is among the old
        left = weakref.ref(circle)

        del circle

        async def gone() -> bool:
            return left() is None

        await eventually(gone)


async def test_nothing_is_looked_at_twice_while_a_plan_is_taken_in() -> None:
    """So many objects at once made Python look at all that there is, several times."""
    looks: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looks.append(info["generation"])

    async with collecting_between():
        gc.callbacks.append(note)
        made = [[number] for number in range(YOUNG * OLDER * OLDER * 2)]
        gc.callbacks.remove(note)

    assert len(made) > YOUNG
    assert 2 not in looks
    assert 1 in looks


async def test_afterwards_everything_is_as_it_was() -> None:
    """A process that goes on without the worker, as a test does, collects as Python does."""
    before = gc.get_threshold()

    async with collecting_between():
        assert gc.get_threshold() != before

    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
