"""What people may ask of a run that is going: the inputs of its updates, and their answer.

Usable from the command line, the Temporal Web UI and the `temporal` command, as JSON by these names.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import ConfigDict, Field

from domain.models import Value


class Steering(Value):
    """Who asks for a change of a run, and why. The input of `pause` and `resume`.

    A key that it does not know is a slip of the pen, and refused: without the tasks that were meant, `retry` means all.
    """

    model_config = ConfigDict(extra="forbid")

    by: Annotated[str, Field(max_length=200)] = "someone"
    note: Annotated[str, Field(max_length=2000)] | None = None


class TaskSteering(Steering):
    """The input of `approve`, `reject`, `skip` and `retry`. Without tasks `retry` means all that did not succeed."""

    tasks: Annotated[tuple[str, ...], Field(max_length=1000)] = ()


class Setting(Steering):
    """The input of `set`."""

    max_concurrency: Annotated[int, Field(ge=1, le=500)] | None = None
    budget_usd: Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = None


class Steered(Value):
    """The answer to a change that was made: what it came to, and which tasks it concerned."""

    done: str
    tasks: tuple[str, ...] = ()
