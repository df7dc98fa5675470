"""The text of a playbook is read: when it applies, and what it must be told."""

from __future__ import annotations

from domain.document import parse
from domain.forms import Filled, fill
from domain.grammar import PlanForm
from domain.planning import name_from
from domain.playbook import Parameter, Playbook
from domain.problems import TOP, Invalid, Problems
from domain.tree import Mapping, Node, Sequence

MORE = ("agents", "files", "plan", "prompt_file")
"""Keys by which a plan has more than its tasks: what they name is read or brought along by whoever starts it."""


def playbook_from_text(text: str, *, file: str) -> Playbook:
    """The playbook that a text holds, or `Invalid`. Whether it is a valid plan is known once it has its parameters."""
    problems = Problems(file)
    _, root = parse(text, problems)
    filled = fill(PlanForm, root, problems, what="the playbook") if root is not None else None
    problems.raise_if_any()
    if filled is None or (header := filled.form.playbook) is None:
        hint = "playbook: {when: TEXT}"
        problems.add(TOP, "a playbook says when it applies, and this file does not", hint=hint)
        raise Invalid(problems.in_order())
    form = filled.form
    return Playbook(
        name=form.name or name_from(file),
        when=header.when,
        params=tuple(
            Parameter(name=name, about=param.about, default=param.default)
            for name, param in (form.params or {}).items()
        ),
        example=header.example,
        brings=_brings(filled),
        text=text,
    )


def _brings(filled: Filled[PlanForm]) -> tuple[str, ...]:
    tasks = filled.value("tasks")
    written: list[Node | None] = [filled.node, filled.value("defaults")]
    written += tasks.items if isinstance(tasks, Sequence) else []
    written += [
        node.entries["for_each"].value for node in written if isinstance(node, Mapping) and "for_each" in node.entries
    ]
    keys = {key for node in written if isinstance(node, Mapping) for key in node.entries}
    return tuple(key for key in MORE if key in keys)
