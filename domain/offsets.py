"""How far somebody has come in the events of many runs: for each run the last event that was read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from domain.events import Event, EventType
from domain.rights import Unsaid
from domain.values import Value


class Mark(Value):
    """The last event of a run that was read.

    With its time: after an older database was restored, or when a run was pruned and another one got its id, there may
    be another event under the same number. Then all of the run is read again.
    """

    number: int
    time: datetime
    ended: Annotated[bool, Unsaid] = False
    """Whether it was the last of its run."""

    @staticmethod
    def at(event: Event) -> Mark:
        """The mark of who has read as far as this event."""
        return Mark(number=event.number, time=event.time, ended=event.type is EventType.RUN_COMPLETED)

    def is_at(self, event: Event) -> bool:
        """Whether this is the event that was read."""
        return (self.number, self.time) == (event.number, event.time)


Offsets = Mapping[str, Mark]
"""By run. One that is not there was not read yet."""


class ReaderPlace(Value):
    """How far a reader with a name has come, as it is kept."""

    name: str
    session: str
    """Of the process that reads under this name now."""
    saved: datetime
    runs: dict[str, Mark]
