"""A plan that takes the place of another one while it runs: which, and what is different in it."""

from __future__ import annotations

from typing import Annotated

from domain.models import Unsaid, Value
from domain.progress import Outline
from domain.steering import Steering


class Amendment(Value):
    """The plan as it is to be from now on, by reference and in outline."""

    plan_ref: str
    base_ref: str
    """The plan that it was made from: what somebody else has changed since is not overwritten."""
    outline: Outline
    edited: Annotated[tuple[str, ...], Unsaid] = ()
    """Tasks of both plans that say something else now. An outline does not show a prompt."""


class Change(Steering):
    """The input of `change`: who wants the plan to be otherwise, and how."""

    amendment: Amendment
