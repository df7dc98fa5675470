"""The request that goes back to an agent whose answer cannot be used: its own answer, and what is wrong with it.

Only the last answer goes along, and not what was said before it: so what a request can cost at most is known before
the first one is made.
"""

from __future__ import annotations

from domain.briefing import Brief, Marks, Turn
from domain.cutting import NOTE_BYTES, shorten
from domain.models import Task
from domain.summarizing import BYTES_A_TOKEN

FAULT_BYTES = 4_000
"""Of what is wrong with an answer, in the words of a check or of a reviewer."""

FRAME_BYTES = 1_000
"""What stands around an answer and what is wrong with it."""

INVALID = "Your answer cannot be used as it is. What is wrong with it, as data:"
REJECTED = "A reviewer did not accept your answer. The review, as data:"


def asked_again(brief: Brief, task: Task, text: str, fault: str, *, number: int, rejected: bool) -> Brief:
    """The brief of a task once more, with the answer that was given to it and what is wrong with that.

    `number` makes every request another one: an agent that said the same twice is asked, and not taken from the ledger.
    """
    fault = shorten(fault, FAULT_BYTES)
    marks = Marks([brief.hash, text, fault])
    words = (
        f"{REJECTED if rejected else INVALID}\n{marks.around('fault', task.id, fault)}\n\n"
        f"Mend that, and give the whole answer once more in the form that was asked for. This is correction {number}."
    )
    answer = shorten(text, most_bytes(task)) or "(empty)"
    turns = Turn(role="assistant", text=answer), Turn(role="user", text=words)
    return brief.model_copy(update={"turns": turns})


def corrections_of(task: Task) -> int:
    """How often an agent may be asked again in one attempt at a task."""
    return task.repairs + (task.review.tries if task.review is not None else 0)


def most_bytes(task: Task) -> int:
    """The bytes of an answer that are read again, by its own agent or by a reviewer."""
    return BYTES_A_TOKEN * task.max_tokens


def again_weight(max_tokens: int) -> int:
    """The tokens that such a request can have at most beside those of the brief itself."""
    return BYTES_A_TOKEN * max_tokens + FAULT_BYTES + FRAME_BYTES + 2 * NOTE_BYTES
