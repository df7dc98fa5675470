"""Walls: conditions of the account or the provider. Meeting one uses no attempt, and nobody runs into it twice.

The supervisor decides when a wall is asked again. A process remembers what it has met, so that calls that are already
on their way, also those of other runs, turn back instead of being refused one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

from activities.model import ModelError, Overloaded
from domain.models import Parked, WallKind

OF_THE_RUN: frozenset[WallKind] = frozenset({"key", "model"})
"""Walls that every run must meet itself: on its first call they are a mistake of the run, and no wall."""

HOLD = timedelta(seconds=30)
"""How long a wall is believed whose end nobody told: the supervisor has one task ask again after a minute."""

OVERLOADED_TASKS, OVERLOADED_WITHIN = 3, 60.0
"""So many tasks within so many seconds: then it is not the one call that the provider has no room for."""

REMEMBERED = 1200.0
"""Seconds for which one more overload is the same wall: longer than the supervisor ever waits to ask again."""

ACCOUNT = ""
OF_THE_ACCOUNT: frozenset[WallKind] = frozenset({"spend", "key", "unreachable"})
PASSING: frozenset[WallKind] = frozenset({"rate", "spend", "overload"})
"""What passes by itself: of these the provider may know the end. The others must be mended."""

WHAT: dict[WallKind, str] = {
    "rate": "the account's rate limit for {model!r} is reached: it passes by itself",
    "spend": "the account's limit of money is reached: raise it at the provider",
    "key": "the provider refuses the credentials: mend ANTHROPIC_API_KEY, then run `./starter.py up` or start a worker",
    "model": "the provider does not know the model {model!r}, or not for this key: give the agent another one",
    "unreachable": "the provider cannot be reached: check the network, and ANTHROPIC_BASE_URL if it is set",
    "overload": "the provider has no capacity for {model!r}: it passes by itself",
    "pool": "its agent is at work as often as it may be",
}


@dataclass(frozen=True)
class _Met:
    """A wall, when it was met, and until when it is believed without asking.

    Its end is kept by two clocks. Ours never jumps; but who was sent by a supervisor for which the end has come must
    get through, or it would be sent again at once, and again.
    """

    parked: Parked
    since: float
    believed: float
    ends: datetime
    run: str | None
    """The only run that it is remembered for."""


class Walls:
    """One per worker process: by model, or for the whole account."""

    def __init__(self) -> None:
        self._met: dict[str, _Met] = {}
        self._overloads: dict[str, dict[tuple[str, str], float]] = {}

    def before(self, run: str, model: str, *, scheduled: datetime) -> Parked | None:
        """The wall that a call to this model would meet, for an attempt that Temporal scheduled at this time."""
        now = monotonic()
        for scope in ACCOUNT, model:
            met = self._met.get(scope)
            if met is None or met.run not in (None, run):
                continue
            if now < met.believed and scheduled < met.ends:
                return met.parked
        return None

    def meet(self, error: ModelError, model: str, task: tuple[str, str], *, probe: bool = False) -> Parked | None:
        """The wall that an error is a sign of; none when it is a fault of the one call.

        A task that probes asks because of a wall: no capacity is then that wall, however few have seen it here.
        """
        kind = error.wall
        if isinstance(error, Overloaded) and (self._is_overloaded(model, task) or probe):
            kind = "overload"
        return None if kind is None else self._put_up(kind, model, task[0], error.retry_after)

    def passed(self, model: str, *, asked: float) -> None:
        """The provider took a call that was made at this time: what was met before it is gone."""
        for scope in ACCOUNT, model:
            if (met := self._met.get(scope)) is not None and met.since < asked:
                del self._met[scope]
        seen = self._overloads.get(model, {})
        self._overloads[model] = {task: at for task, at in seen.items() if at >= asked}

    def _put_up(self, kind: WallKind, model: str, run: str, delay: timedelta | None) -> Parked:
        told = delay if kind in PASSING else None
        held = HOLD if told is None else told
        now, ends = monotonic(), datetime.now(UTC) + held
        parked = Parked(
            why="wall", wall=kind, what=WHAT[kind].format(model=model), until=None if told is None else ends
        )
        scope = ACCOUNT if kind in OF_THE_ACCOUNT else model
        met, known = (
            _Met(parked, now, now + held.total_seconds(), ends, run if kind in OF_THE_RUN else None),
            self._met.get(scope),
        )
        if known is None or known.believed <= met.believed:
            self._met[scope] = met  # of two calls that were refused together, the one with the longer word counts
        return parked

    def _is_overloaded(self, model: str, task: tuple[str, str]) -> bool:
        now = monotonic()
        seen = self._overloads.setdefault(model, {})
        seen[task] = now
        for old in [old for old, at in seen.items() if now - at > OVERLOADED_WITHIN]:
            del seen[old]
        known = self._met.get(model)
        stands = known is not None and known.parked.wall == "overload" and now - known.since <= REMEMBERED
        return stands or len(seen) >= OVERLOADED_TASKS
