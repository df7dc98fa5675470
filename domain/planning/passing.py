"""How results reach those that need them: whole, or as a summary.

One dependant gets the whole result. A result that fans out goes down as a summary: with the whole, the briefs of all
dependants together would grow by its size once for each of them. An edge may say otherwise.
"""

from __future__ import annotations

from collections import Counter

from domain.models import Form
from domain.planning.drafts import Draft, Drafts

MANY = 2
"""So many dependants are a fan-out."""


class Passing:
    """The form of every edge, in effect."""

    def __init__(self, drafts: Drafts) -> None:
        self._dependants: Counter[str] = Counter()
        for draft in drafts.all:
            self._dependants.update(dict.fromkeys(draft.needs, draft.takers))
        self.summarised = {
            need for draft in drafts.all for need in draft.needs if self.form(draft, need) is Form.SUMMARY
        }
        """The tasks that some dependant takes as a summary."""

    def form(self, draft: Draft, need: str) -> Form:
        """The word of the edge, else by how many need the task: every task of a fan-out is one of them."""
        if need in draft.passes:
            return draft.passes[need]
        if need in draft.by_field:
            return Form.FULL  # what is placed of it is all that it reads
        return Form.SUMMARY if self._dependants[need] >= MANY else Form.FULL
