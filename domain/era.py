"""By the steps of which release a run goes: a history that an older one has begun goes on as it was begun."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Era:
    """What the histories of a run say of the releases that began them."""

    before_0_4: bool = False
    before_0_6: bool = False
    before_0_8: bool = False


NOW = Era()
