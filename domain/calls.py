"""One request to a provider, as its run is told of it: who asked whom, what it took, and hashes of what was said.

No text of a prompt or an answer is in it. What the agent was given to read stands in a list of its own, by its hash.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from domain.rights import Unsaid
from domain.values import Usage, Value

SHORT = 12
"""Letters of the hash of a prompt that tell the few prompts of one task apart."""


class Call(Value):
    """One request to a provider. It may have been one in a batch, or one that was lost with its worker."""

    prompt: str
    """The hash of the request: the same for every request that asks the same."""
    number: Annotated[int, Field(exclude_if=lambda number: number == 1)] = 1
    """Which request with this prompt it is, in this step of its task."""
    attempt: Annotated[int, Field(exclude_if=lambda attempt: attempt == 1)] = 1
    agent: Annotated[str | None, Unsaid] = None
    """Name and version."""
    model: Annotated[str, Unsaid] = ""
    at: datetime
    """When it was made."""
    usage: Annotated[Usage, Field(exclude_if=lambda usage: usage == Usage())] = Usage()
    unsettled: Annotated[Usage, Field(exclude_if=lambda usage: usage == Usage())] = Usage()
    """What it may have used on top, at most: the provider did not come to say."""
    answer: Annotated[str | None, Unsaid] = None
    """The hash of all that the provider said, when it came to its end."""
    error: Annotated[str | None, Unsaid] = None
    """Why it brought no answer that is used."""
    reads: Annotated[str | None, Unsaid] = None
    """The hash of the list of what its agent was given to read."""
    batched: Annotated[bool, Unsaid] = False

    @property
    def is_told_beside(self) -> bool:
        """Whether it is the one call of an answer, and what it took and brought stands there."""
        return self.answer is None and self.error is None

    @property
    def key(self) -> str:
        """What tells it from the other requests of its step."""
        return f"{self.prompt.removeprefix('sha256:')[:SHORT]}/{self.number}"
