"""What a playbook is: a plan with parameters, and a sentence on when it applies."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from domain.values import Value


class Parameter(Value):
    """What a playbook must be told, or may be."""

    name: str
    about: str | None = None
    default: str | None = None


class Playbook(Value):
    """A plan with parameters, and when it applies. The text is that of its file."""

    name: str
    when: str
    params: tuple[Parameter, ...] = ()
    example: dict[str, str] = Field(default_factory=dict)
    """Parameters with which it can be tried out."""
    brings: Annotated[tuple[str, ...], Field(exclude_if=lambda brings: not brings)] = ()
    """What of its plan is more than tasks: files, agents of its own. A person must choose such a playbook."""
    text: str
