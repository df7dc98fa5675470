"""Which events somebody asks for. In all that is asked, `*` stands for any text and `?` for one character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from domain.events import Logged

WILD = re.compile(r"[*?]")


@dataclass(frozen=True)
class Wanted:
    """What an event must be. Of several words of one kind one must fit; of a kind without any, all do."""

    types: Sequence[str] = ()
    sources: Sequence[str] = ()
    runs: Sequence[str] = ()
    subjects: Sequence[str] = ()
    correlations: Sequence[str] = ()
    since: datetime | None = None

    def takes(self, logged: Logged) -> bool:
        """Whether this event is asked for."""
        return (
            (self.since is None or logged.event.time >= self.since)
            and (not self.types or any(of_type(logged.event.type, pattern) for pattern in self.types))
            and _one_fits(logged.source, self.sources)
            and _one_fits(logged.run, self.runs)
            and _one_fits(logged.subject, self.subjects)
            and _one_fits(logged.correlation, self.correlations)
        )

    def concerns(self, run: str) -> bool:
        """Whether any event of a run can be asked for: of one that is not concerned nothing needs to be read."""
        return _one_fits(run, self.runs) and (
            not self.subjects or any(_is_of(run, pattern) for pattern in self.subjects)
        )

    def concerns_family(self, run: str, family: str) -> bool:
        """The same by what a run belongs to. Before 0.7.0 every run belonged to itself alone."""
        return _one_fits(run, self.correlations) or _one_fits(family, self.correlations)


EVERYTHING = Wanted()


def fits(text: str, pattern: str) -> bool:
    """Whether a text is what a pattern says. Brackets are brackets: ids of tasks have them."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def of_type(type: str, pattern: str) -> bool:
    """The same for types, where `task.` stands for all that begin so."""
    return fits(type, f"{pattern}*" if pattern.endswith(".") else pattern)


def _one_fits(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fits(text, pattern) for pattern in patterns)


def _is_of(run: str, pattern: str) -> bool:
    """Whether a subject that fits may be of this run: what stands before the first `*` or `?` decides."""
    wild = WILD.search(pattern)
    if wild is None:
        return pattern.partition("/")[0] == run
    said = pattern[: wild.start()]
    return f"{run}/".startswith(said) or said.startswith(f"{run}/")
