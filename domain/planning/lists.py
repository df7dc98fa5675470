"""Lists and paths that come as parameters: `for_each: {param: systems}`, `files: ["{{ params.document }}"]`.

So a plan can be written once, for whatever it is asked of: see playbooks/.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.notation import item_label
from domain.planning import templates
from domain.planning.drafts import Draft, same
from domain.planning.templates import Scope
from domain.problems import Located, Mistake, Problems, did_you_mean, quoted


class Ungiven(str):
    """The value of a parameter that nobody gave, or that is wrong: it has a complaint of its own."""

    __slots__ = ()


class Lists:
    """What parameters hold where a plan does not take them as text."""

    def __init__(self, params: Mapping[str, str], problems: Problems) -> None:
        self._params, self._problems = params, problems
        self._scope = Scope(params=params)

    @property
    def used(self) -> set[str]:
        """The parameters that were asked for."""
        return self._scope.used

    def items(self, draft: Draft, name: str, *place: str) -> list[str]:
        """The items of a list that is written as `a,b,c`."""
        at = draft.filled.at(*(place or ("for_each",)), "param")
        value = self._params.get(name)
        self._scope.used.add(f"params.{name}")
        if value is None:
            hint = did_you_mean(name, self._params) or f"declared: {', '.join(self._params) or 'none'}"
            self._problems.add(at, f"the plan declares no parameter {quoted(name)}", task=draft.id, hint=hint)
            return []
        found: dict[str, str] = {}
        for item in filter(None, map(str.strip, value.split(","))):
            try:
                item_label(item)
            except Mistake as mistake:
                message = f"the item {quoted(item)} of the parameter {quoted(name)} {mistake}"
                self._problems.add(at, message, task=draft.id)
            if same(item) in found:
                self._problems.add(at, f"the parameter {quoted(name)} has {quoted(item)} twice", task=draft.id)
            found[same(item)] = item
        if not found and not isinstance(value, Ungiven):
            hint = f"--param {name}=ONE,ANOTHER"
            self._problems.add(at, f"the parameter {quoted(name)} holds no items", task=draft.id, hint=hint)
        return list(found.values())

    def path(self, text: str, at: Located, task: str) -> str | None:
        """A path with its parameters, held to the same rules as one that is written out; None: it has a complaint."""
        wrong: list[str] = []

        def complain(_: int, message: str, hint: str | None) -> None:
            wrong.append(message)
            self._problems.add(at, message, task=task, hint=hint)

        pieces = templates.read(text, self._scope, complain, where="a path")
        if wrong or any(isinstance(piece, Ungiven) for piece in pieces):
            return None
        return "".join(str(run) for run in templates.fill_in(pieces, ""))
