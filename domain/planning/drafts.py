"""Tasks as they are written become drafts: each id checked, each fan-out laid out, each need found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from domain.forms import Filled, fill
from domain.grammar import FilesForm, ListForm, SourceForm, TaskForm
from domain.graph import cycles, in_order
from domain.models import Form, Policy
from domain.notation import item_label
from domain.notation import same as same  # noqa: PLC0414  who reads drafts compares names
from domain.planning.attachments import Attachments, FolderError
from domain.problems import Located, Mistake, Problems, Suggestions, quoted
from domain.tree import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from domain.planning.inside import Inner
    from domain.planning.lists import Lists

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
    by_field: set[str] = field(default_factory=set)
    """Needs of which it places a field: it is given the whole of them to read."""
    again: bool = False
    inner: Inner | None = None
    """The plan that it stands for, where it does and that could be read."""
    complete: bool = False
    """Whether all of its needs were found: otherwise nothing can be said of how many there are."""

    @property
    def id(self) -> str:
        """The id as it is written."""
        return self.filled.form.id

    @property
    def is_plan(self) -> bool:
        """Whether it stands for the tasks of another plan."""
        return self.filled.form.plan is not None or "plan" in self.filled.wrong

    @property
    def takers(self) -> int:
        """How many tasks take what it needs."""
        if self.inner is not None:
            return self.inner.first
        return self.awaits.most if self.awaits is not None else len(self.ids)

    @property
    def awaits(self) -> SourceForm | None:
        """Of a fan-out over a list that a task is yet to make: which, and how long it may be."""
        each = self.filled.form.for_each
        return each if isinstance(each, SourceForm) else None

    @property
    def size(self) -> int:
        """How many tasks it stands for."""
        if self.inner is not None:
            return len(self.inner.plan.tasks)
        if self.awaits is not None:
            return self.awaits.most
        return len(self.items) if self.fans_out else 1

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
        self.lists: dict[str, list[Draft]] = {}
        """The fan-outs over the list of a task, by that task."""

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

    def lay_out(self, attachments: Attachments, lists: Lists) -> None:
        """Give every draft the ids of its tasks. A plan with too many keeps one each: the other checks still run."""
        for draft in self.all:
            draft.items = self._items(draft, attachments, lists)
        total = sum(draft.size for draft in self.all)
        if total > MAX_TASKS:
            self._shortened = True
            largest = max(self.all, key=lambda draft: draft.size)
            at = largest.filled.at("plan" if largest.is_plan else "for_each")
            self._problems.add(at, f"the plan has {total:,} tasks; at most {MAX_TASKS:,} are possible", task=largest.id)
        for draft in self.all:
            if total > MAX_TASKS:
                del draft.items[1:]
            laid_out = draft.fans_out and draft.awaits is None
            draft.ids = tuple(f"{draft.id}[{item}]" for item in draft.items) if laid_out else (draft.id,)
            if draft.inner is not None:
                draft.ids = draft.inner.finals
            if laid_out:
                self._full.update(dict.fromkeys(draft.ids, draft.id))

    def _items(self, draft: Draft, attachments: Attachments, lists: Lists) -> list[str]:
        each = draft.filled.form.for_each
        if isinstance(each, FilesForm):
            pattern = lists.path(each.files, draft.filled.at("for_each", "files"), draft.id)
            return self._file_items(draft, pattern, attachments) if pattern is not None else []
        if isinstance(each, ListForm):
            return lists.items(draft, each.param)
        if isinstance(each, SourceForm):
            return []  # nobody knows them yet
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
        self._look_up_names_beside_mistakes()
        edges: dict[str, dict[str, Located]] = {id: {} for id in self.by_id}
        count = 0
        for draft in self.all:
            found = "needs" not in draft.filled.wrong and not self._shortened
            precise: set[str] = set()
            written: set[str] = set()
            for name, policy, form, at in written_needs(draft):
                if name in written:
                    self._problems.add(at, f"needs {quoted(name)} twice", task=draft.id)
                written.add(name)
                ids = self._needed(draft, name, at)
                found = found and bool(ids)
                count += len(ids) * draft.takers
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
            if draft.awaits is not None and (place := self._await(draft, draft.awaits.source)) is not None:
                edges[draft.id].setdefault(draft.awaits.source, place)
            draft.complete = found
        for cycle in cycles({id: list(needs) for id, needs in edges.items()}):
            shown = [*cycle, cycle[0]] if len(cycle) <= 20 else [*cycle[:10], "...", *cycle[-10:], cycle[0]]
            following = cycle[1] if len(cycle) > 1 else cycle[0]
            message = f"the needs form a cycle: {' -> '.join(shown)}"
            self._problems.add(edges[cycle[0]][following], message, task=cycle[0])

    def _look_up_names_beside_mistakes(self) -> None:
        for draft in self.all:
            for name, at in _names_beside_a_mistake(draft):
                self._needed(draft, name, at)

    def _await(self, draft: Draft, source: str) -> Located | None:
        """Let a fan-out need the task that makes its list: without a list there is nothing to do."""
        at = draft.filled.at("for_each", "from")
        if not (ids := self._needed(draft, source, at)):
            return None
        maker = self.by_id.get(source)
        if maker is None or maker.fans_out or maker.is_plan:
            message = f"{quoted(source)} makes no list by itself: it stands for several tasks"
            self._problems.add(at, message, task=draft.id, hint="name one task, whose answer is the list")
            return None
        if draft.needs.get(source) is Policy.OPTIONAL:
            message = f"needs {quoted(source)} as optional, and 'for_each' cannot do without its list"
            self._problems.add(at, message, task=draft.id, hint="remove it from needs")
        if source not in draft.needs:
            draft.passes[source] = Form.NAME  # each is given its item, and not the list
        draft.needs[source] = Policy.REQUIRE
        self.lists.setdefault(source, []).append(draft)
        return at if ids and not draft.again else None

    def width(self, id: str) -> int:
        """How many tasks one that is needed may become."""
        found = self.by_id.get(id)
        return found.awaits.most if found is not None and found.awaits is not None else 1

    def upstream_first(self) -> list[Draft]:
        """Every draft after those that it needs; those of a cycle, and of an id that is there twice, at the end."""
        owners = {id: draft.id for draft in self.all if not draft.again for id in draft.ids}
        needs = {
            draft.id: [owners[need] for need in draft.needs if need in owners] for draft in self.all if not draft.again
        }
        order = {id: place for place, id in enumerate(in_order(needs))}
        return sorted(self.all, key=lambda draft: len(order) if draft.again else order.get(draft.id, len(order)))

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


def written_needs(draft: Draft) -> Iterator[tuple[str, Policy, Form | None, Located]]:
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


def _names_beside_a_mistake(draft: Draft) -> Iterator[tuple[str, Located]]:
    """The needs that can be read though something beside them is wrong: that must hide no name that nobody has."""
    filled = draft.filled
    if "needs" in filled.wrong:
        node = filled.value("needs")
        yield from ((name, entry.key) for name, entry in node.entries.items()) if isinstance(node, Mapping) else ()
        yield from filled.names("needs") if isinstance(node, Sequence) else ()
    if "for_each" in filled.wrong:
        yield from filled.names("for_each", "from")
