"""Nodes of a document become filled-in forms, or sentences that say what is wrong and where."""

from __future__ import annotations

import re
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from domain.grammar import (
    ApprovalForm,
    CheckForm,
    DefaultsForm,
    EdgeForm,
    ExpectForm,
    FilesForm,
    Form,
    ParamForm,
    PlanForm,
    PlaybookForm,
    ReplanForm,
    ReviewForm,
    RightsForm,
    TaskForm,
)
from domain.notation import Odd
from domain.problems import Located, Problems, did_you_mean, quoted
from domain.tree import Broken, Mapping, Node, Scalar, Sequence, describe

F = TypeVar("F", bound=Form)

_NESTED: AnyMapping[str, type[Form]] = {
    "approval": ApprovalForm,
    "check": CheckForm,
    "expect": ExpectForm,
    "for_each": FilesForm,
    "needs": EdgeForm,
    "params": ParamForm,
    "replan": ReplanForm,
    "playbook": PlaybookForm,
    "review": ReviewForm,
    "rights": RightsForm,
}
_EXPECTED = {
    "bool_type": "true or false",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_BROKEN = object()


@dataclass(frozen=True)
class Filled(Generic[F]):
    """A form with the keys that could be read, and the names of those that were wrong (and reported)."""

    form: F
    node: Mapping
    wrong: frozenset[str]

    def at(self, *keys: str | int) -> Node:
        """What stands under these keys, or the nearest thing around it."""
        return _find(self.node, keys)[0]

    def value(self, key: str) -> Node | None:
        """What stands under this key, if it is there."""
        entry = self.node.entries.get(key)
        return entry.value if entry is not None else None

    def names(self, *keys: str) -> list[tuple[str, Node]]:
        """The names that are written under these keys, one or a list of them, and where.

        They can be read though something beside them is wrong: that must not hide a name that nobody has.
        """
        node: Node | None = self.node
        for key in keys:
            entry = node.entries.get(key) if isinstance(node, Mapping) else None
            node = entry.value if entry is not None else None
        written = node.items if isinstance(node, Sequence) else [node]
        texts = (one for one in written if isinstance(one, Scalar) and one.odd is None)
        return [(one.value, one) for one in texts if isinstance(one.value, str)]


def fill(form: type[F], node: Node, problems: Problems, *, what: str, task: str | None = None) -> Filled[F] | None:
    """The form with everything that is right in the node; nothing when a required key is missing or wrong.

    Keys that are wrong are left out and the rest is read again, so that one mistake does not hide the others.
    """
    if not isinstance(node, Mapping):
        if not isinstance(node, Broken):
            problems.add(node, f"{what} must be a mapping, not {describe(node)}")
        return None
    wrong: set[str] = set()
    for key, entry in node.entries.items():
        if isinstance(entry.value, Scalar) and entry.value.value is None:
            problems.add(entry.value, f"{quoted(key)} is empty", task=task, hint="give it a value, or remove the key")
            wrong.add(key)
    values = {
        key: _outline(entry.value) if key in form.elsewhere else plain(entry.value)
        for key, entry in node.entries.items()
        if key not in wrong
    }
    try:
        return Filled(form.model_validate(values), node, frozenset(wrong))
    except ValidationError as error:
        details = error.errors(include_url=False)
        unwanted = {detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden"} - {()}
        for detail in details:
            key = str(detail["loc"][0])
            if not (detail["type"] == "missing" and (key in wrong or detail["loc"][:-1] in unwanted)):
                _report(form, node, detail, problems=problems, what=what, task=task)
            wrong.add(key)
    try:
        right = {key: value for key, value in values.items() if key not in wrong}
        return Filled(form.model_validate(right), node, frozenset(wrong))
    except ValidationError:
        return None


def plain(node: Node) -> Any:
    """The values of a tree without their places. Recursive: a document is at most 20 levels deep."""
    if isinstance(node, Scalar):
        if node.odd is None:
            return node.value
        odd = Odd(node.value)
        odd.reading = node.odd
        return odd
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if isinstance(node, Mapping):
        return {key: plain(entry.value) for key, entry in node.entries.items()}
    return _BROKEN


def _outline(node: Node) -> Any:
    """An empty list for a list, an empty mapping for a mapping: enough to check what a value is."""
    return [] if isinstance(node, Sequence) else {} if isinstance(node, Mapping) else plain(node)


def _find(node: Node, path: tuple[str | int, ...]) -> tuple[Node, list[str | int]]:
    """The node at the end of a path and the steps to it. Steps that are not in the tree (tags) are skipped."""
    steps: list[str | int] = []
    for step in path:
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            node = node.entries[step].value
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            continue
        steps.append(step)
    return node, steps


def _report(
    form: type[Form], root: Mapping, detail: ErrorDetails, *, problems: Problems, what: str, task: str | None
) -> None:
    """Say one of pydantic's complaints in our words, at the place it is about."""
    path, kind = detail["loc"], detail["type"]
    node, steps = _find(root, path)
    if isinstance(node, Broken) and kind != "extra_forbidden":
        return
    at: Located = node
    name = quoted("".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip("."))
    if kind == "missing":
        message, hint = f"{quoted(str(path[-1]))} is missing in {name if steps else what}", None
    elif kind == "extra_forbidden":
        nested = len(steps) > 1
        owner = _NESTED[str(steps[0])] if nested else form
        message, hint = _about_key(owner, str(steps[-1]), quoted(str(steps[0])) if nested else what)
    else:
        message, hint = _sentence(detail, node)
        message = f"{name} {message}"
    if kind == "extra_forbidden" or path[-1] == "[key]":
        parent, _ = _find(root, tuple(steps[:-1]))
        at = parent.entries[str(steps[-1])].key if isinstance(parent, Mapping) else node
    problems.add(at, message, task=task, hint=hint)


def _about_key(form: type[Form], key: str, what: str) -> tuple[str, str | None]:
    """Why a key may not stand in this form, and what was probably meant."""
    if key in form.later:
        return f"{quoted(key)} is not supported yet", None
    if form is DefaultsForm and key in TaskForm.model_fields:
        return f"{quoted(key)} cannot stand in defaults", "write it in each task"
    if form in (DefaultsForm, TaskForm) and key in PlanForm.model_fields:
        return f"{quoted(key)} cannot stand in {what}", "write it at the top of the plan"
    if form is PlanForm and key in TaskForm.model_fields:
        where = "defaults" if key in DefaultsForm.model_fields else "a task"
        return f"{quoted(key)} cannot stand at the top of the plan", f"write it in {where}"
    known = sorted(field.alias or name for name, field in form.model_fields.items())
    if key in known:  # of a form that is told apart by another key
        return f"{quoted(key)} cannot stand beside the other key of {what}", "give one of them"
    return f"unknown key {quoted(key)} in {what}", did_you_mean(key, known) or f"known: {', '.join(known)}"


def _sentence(detail: ErrorDetails, node: Node) -> tuple[str, str | None]:
    """What is wrong with a value, and what to do about it."""
    kind, context = detail["type"], detail.get("ctx", {})
    message, hint = detail["msg"], None
    if kind == "value_error":
        message, hint = str(context["error"]), getattr(context["error"], "hint", None)
    elif kind in _EXPECTED:
        message = f"must be {_EXPECTED[kind]}, not {describe(node)}"
        hint = "write it in quotes" if kind == "string_type" and isinstance(node, Scalar) else None
    elif kind in ("greater_than_equal", "less_than_equal"):
        limit = f"at least {context['ge']:,}" if "ge" in context else f"at most {context['le']:,}"
        message = f"must be {limit}, not {describe(node)}"
    elif kind == "literal_error":
        expected = context["expected"].replace("'", "")
        message = f"must be {expected}, not {describe(node)}"
        hint = did_you_mean(str(detail["input"]), re.findall(r"(?!or\b)\w+", expected))
    elif kind in ("too_short", "string_too_short"):
        message = "must not be empty"
    elif kind in ("too_long", "string_too_long"):
        message = f"must be at most {context['max_length']:,} characters long"
    return message, hint
