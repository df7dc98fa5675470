"""Tasks as they are written become drafts: each id checked, each fan-out laid out, each need found."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from domain.forms import Filled, fill
from domain.grammar import FilesForm, TaskForm
from domain.graph import cycles
from domain.models import Form, Policy
from domain.notation import item_label
from domain.planning.attachments import Attachments, FolderError
from domain.problems import Located, Mistake, Problems, Suggestions, quoted
from domain.tree import Mapping, Node, Scalar, Sequence

MAX_TASKS = 10_000
MAX_NEEDS = 100_000


@dataclass
class Draft:
    """One written task: its items if it is a fan-out, and the ids and needs of the tasks it stands for."""

    filled: Filled[TaskForm]
    items: list[str] = field(default_factory=list)
    ids: tuple[str, ...] = ()
    needs: dict[str, Policy] = field(default_factory=dict)
    passes: dict[str, Form] = field(default_factory=dict)
    """How results reach it, by need, where the edge says so."""
    again: bool = False
    complete: bool = False
    """Whether all of its needs were found: otherwise nothing can be said of how many there are."""

    @property
    def id(self) -> str:
        """The id as it is written."""
        return self.filled.form.id

    @property
    def fans_out(self) -> bool:
        """Whether it stands for one task per item."""
        return self.filled.form.for_each is not None or "for_each" in self.filled.wrong


class Drafts:
    """All drafts of a plan, and how their names are looked up."""

    def __init__(self, node: Node | None, problems: Problems) -> None:
        self._problems = problems
        self.all: list[Draft] = []
        self.broken: set[str] = set()
        self._read(node)
        self.by_id = {draft.id: draft for draft in self.all if not draft.again}
        self.suggest = Suggestions([*self.by_id, *self.broken])
        self._full: dict[str, str] = {}
        self._shortened = False

    def _read(self, node: Node | None) -> None:
        first: dict[str, Scalar] = {}
        items = node.items if isinstance(node, Sequence) else []
        if len(items) > MAX_TASKS:
            self._problems.add(
                items[MAX_TASKS], f"the plan has {len(items):,} tasks; at most {MAX_TASKS:,} are possible"
            )
            items = []
        for item in items:
            entry = item.entries.get("id") if isinstance(item, Mapping) else None
            key = entry.value if entry is not None and isinstance(entry.value, Scalar) else None
            id = key.value if key is not None and isinstance(key.value, str) else None
            filled = fill(TaskForm, item, self._problems, what="a task", task=id)
            if filled is not None:
                self.all.append(Draft(filled))
            elif id is not None:
                self.broken.add(id)
            if key is not None and id is not None:
                earlier = first.setdefault(same(id), key)
                if earlier is not key:
                    self._add_duplicate(earlier, key)
                    if filled is not None:
                        self.all[-1].again = True

    def _add_duplicate(self, earlier: Scalar, key: Scalar) -> None:
        lines = f"in line {earlier.line} and again in line {key.line}"
        hint = None if earlier.value == key.value else f"it differs from {earlier.value!r} only in case or spelling"
        self._problems.add(key, f"the id {quoted(str(key.value))} is {lines}", task=str(key.value), hint=hint)

    def lookup(self, name: str) -> tuple[str, ...] | None:
        """The ids that a name stands for: one task, or all of a fan-out."""
        if name in self.by_id:
            return self.by_id[name].ids
        return (name,) if name in self._full else None

    def lay_out(self, attachments: Attachments) -> None:
        """Give every draft the ids of its tasks. A plan with too many keeps one each: the other checks still run."""
        for draft in self.all:
            draft.items = self._items(draft, attachments)
        total = sum(len(draft.items) if draft.fans_out else 1 for draft in self.all)
        if total > MAX_TASKS:
            self._shortened = True
            largest = max(self.all, key=lambda draft: len(draft.items))
            at = largest.filled.at("for_each")
            self._problems.add(at, f"the plan has {total:,} tasks; at most {MAX_TASKS:,} are possible", task=largest.id)
        for draft in self.all:
            if total > MAX_TASKS:
                del draft.items[1:]
            draft.ids = tuple(f"{draft.id}[{item}]" for item in draft.items) if draft.fans_out else (draft.id,)
            if draft.fans_out:
                self._full.update(dict.fromkeys(draft.ids, draft.id))

    def _items(self, draft: Draft, attachments: Attachments) -> list[str]:
        each = draft.filled.form.for_each
        if isinstance(each, FilesForm):
            return self._file_items(draft, each.files, attachments)
        if each is not None and not each:
            self._problems.add(draft.filled.at("for_each"), "'for_each' must not be empty", task=draft.id)
        seen: dict[str, int] = {}
        for index, item in enumerate(each or ()):
            earlier = seen.setdefault(same(item), index)
            if earlier != index:
                lines = [draft.filled.at("for_each", number).line for number in (earlier, index)]
                message = f"the item {quoted(item)} is in line {lines[0]} and again in line {lines[1]}"
                self._problems.add(draft.filled.at("for_each", index), message, task=draft.id)
        return list(each or ())

    def _file_items(self, draft: Draft, pattern: str, attachments: Attachments) -> list[str]:
        at = draft.filled.at("for_each", "files")
        try:
            paths = attachments.matching(pattern)
        except FolderError as error:
            self._problems.add(at, f"'for_each': {error}", task=draft.id)
            return []
        seen: dict[str, str] = {}
        for path in paths:
            try:
                item_label(path)
            except Mistake as mistake:
                self._problems.add(at, f"the file name {quoted(path)} {mistake}", task=draft.id)
            if seen.setdefault(same(path), path) != path:
                message = f"the files {quoted(seen[same(path)])} and {quoted(path)} differ only in case or spelling"
                self._problems.add(at, message, task=draft.id)
        return paths

    def connect(self) -> None:
        """Give every draft its needs, and report those that are unknown or lead back to themselves."""
        edges: dict[str, dict[str, Located]] = {id: {} for id in self.by_id}
        count = 0
        for draft in self.all:
            found = "needs" not in draft.filled.wrong and not self._shortened
            precise: set[str] = set()
            written: set[str] = set()
            for name, policy, form, at in _written_needs(draft):
                if name in written:
                    self._problems.add(at, f"needs {quoted(name)} twice", task=draft.id)
                written.add(name)
                ids = self._needed(draft, name, at)
                found = found and bool(ids)
                count += len(ids) * len(draft.ids)
                if count > MAX_NEEDS:
                    message = f"the plan has more than {MAX_NEEDS:,} needs, a fan-out counted by its tasks"
                    self._problems.add(at, message, task=draft.id)
                    return
                meant = [id for id in ids if id not in precise]
                draft.needs.update(dict.fromkeys(meant, policy))
                for id in meant:
                    draft.passes.pop(id, None)  # nor does a general word count where the precise edge has none
                draft.passes.update(dict.fromkeys(meant, form) if form is not None else {})
                if name in self._full:
                    precise.add(name)
                if ids and not draft.again:
                    edges[draft.id].setdefault(self._full.get(name, name), at)
            draft.complete = found
        for cycle in cycles({id: list(needs) for id, needs in edges.items()}):
            shown = [*cycle, cycle[0]] if len(cycle) <= 20 else [*cycle[:10], "...", *cycle[-10:], cycle[0]]
            following = cycle[1] if len(cycle) > 1 else cycle[0]
            message = f"the needs form a cycle: {' -> '.join(shown)}"
            self._problems.add(edges[cycle[0]][following], message, task=cycle[0])

    def _needed(self, draft: Draft, name: str, at: Located) -> tuple[str, ...]:
        base = name.partition("[")[0]
        if name == draft.id or self._full.get(name) == draft.id:
            self._problems.add(at, f"the task needs itself: {draft.id} -> {draft.id}", task=draft.id)
            return ()
        ids = self.lookup(name)
        if ids is None:
            owner = self.by_id.get(base)
            if base not in self.broken and not (owner is not None and "for_each" in owner.filled.wrong):
                hint = (
                    Suggestions(owner.ids).hint(name) if owner is not None and base != name else self.suggest.hint(name)
                )
                self._problems.add(at, f"needs {quoted(name)}, which is no task of this plan", task=draft.id, hint=hint)
        return ids or ()


def _written_needs(draft: Draft) -> Iterator[tuple[str, Policy, Form | None, Located]]:
    """Each need with its policy, its form where one is written, and its place."""
    needs = draft.filled.form.needs
    if isinstance(needs, dict):
        node = draft.filled.at("needs")
        for name, edge in needs.items():
            at = node.entries[name].key if isinstance(node, Mapping) else node
            if isinstance(edge, str):
                yield name, Policy(edge), None, at
            else:
                yield name, Policy(edge.policy), Form(edge.form) if edge.form else None, at
    else:
        for index, name in enumerate(needs or ()):
            yield name, Policy.TOLERATE, None, draft.filled.at("needs", index)


def same(name: str) -> str:
    """What two names have in common that people cannot tell apart, or file systems cannot."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
