"""A plan inside a plan: a task that says `plan: FILE` stands for all tasks of that file.

Its tasks get ids under its own (`research/scan`), those that need nobody take what the task needs, and whoever needs
the task needs those that nobody needs. So one supervisor runs them all, and whatever can be done with a task can be
done with each of them. Why it is no run of its own: docs/decisions/0031-a-plan-inside-a-plan.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from domain.graph import final_tasks
from domain.item_places import ITEM
from domain.models import Agent, Need, Pace, Part, Placement, Plan, Task
from domain.planning import templates
from domain.planning.attachments import Attachments, Folder, FolderError
from domain.planning.conditions import check_quorum
from domain.planning.drafts import Draft
from domain.planning.passing import Passing
from domain.planning.templates import Scope
from domain.problems import Invalid, Problem, Problems, quoted
from domain.tree import Source

if TYPE_CHECKING:
    from domain.planning import Planned

ALONGSIDE = frozenset({"id", "plan", "params", "needs", "quorum"})
"""The keys of a task that is a plan: all else is written in that plan."""

MOST = 100
"""Plans inside one plan: each is read whole before its tasks are counted."""


class Read(Protocol):
    """How the text of a plan is read that lies in a file, with these parameters."""

    def __call__(self, file: str, text: str, params: Mapping[str, str], /) -> Planned: ...  # noqa: D102


@dataclass(frozen=True)
class Inner:
    """A plan that stands inside another one, under the id of a task."""

    under: str
    planned: Planned

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.planned.plan

    def id(self, task: str) -> str:
        """What a task of it is called outside."""
        return f"{self.under}/{task}"

    @property
    def finals(self) -> tuple[str, ...]:
        """The tasks whose results are its result."""
        return tuple(self.id(task) for task in final_tasks(self.plan))

    @property
    def first(self) -> int:
        """How many tasks take what it needs."""
        return sum(not task.needs for task in self.plan.tasks)

    def tasks(self, draft: Draft, passing: Passing) -> Iterator[Task]:
        """Its tasks as tasks of the whole."""
        given = tuple(Need(task=id, policy=policy, form=passing.form(draft, id)) for id, policy in draft.needs.items())
        for task in self.plan.tasks:
            begins = {} if task.needs else {"needs": given, "quorum": draft.filled.form.quorum}
            moved = {
                "id": self.id(task.id),
                "part": self.under,
                "prompt": tuple(self._moved(piece) for piece in task.prompt),
                "needs": tuple(need.model_copy(update={"task": self.id(need.task)}) for need in task.needs),
                "summarise": task.summarise or self.id(task.id) in passing.summarised,
                "each": task.each.model_copy(update={"source": self.id(task.each.source)}) if task.each else None,
                "shares": None,  # who has siblings is known when all plans are together
            }
            yield task.model_copy(update={**moved, **begins})

    def _moved(self, piece: str | Placement) -> str | Placement:
        if isinstance(piece, str) or piece == ITEM:
            return piece
        moved = {"name": self.id(piece.name), "tasks": tuple(self.id(task) for task in piece.tasks)}
        return piece.model_copy(update=moved)


class Insides:
    """The plans inside one plan. `read` is nothing where there cannot be any: in a plan that is inside another."""

    def __init__(
        self,
        source: Source,
        attachments: Attachments,
        params: Mapping[str, str],
        problems: Problems,
        read: Read | None,
    ) -> None:
        self._source, self._attachments, self._problems = source, attachments, problems
        self._scope = Scope(params=params)
        self._read = read
        self._drafts: dict[str, Draft] = {}
        self._inner: dict[str, Inner] = {}

    @property
    def used(self) -> set[str]:
        """What stands in the parameters that plans inside are given."""
        return self._scope.used

    @property
    def contents(self) -> dict[str, bytes]:
        """The files that they bring along."""
        return {ref: content for inner in self._inner.values() for ref, content in inner.planned.contents.items()}

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is doubtful in them."""
        return tuple(dict.fromkeys(each for inner in self._inner.values() for each in inner.planned.warnings))

    def look_into(self, draft: Draft) -> None:
        """Read the plan that a task stands for, if it does. Its mistakes are told with its own name."""
        if not draft.is_plan:
            if draft.filled.form.params is not None:
                self._complain(draft, "params", "'params' stands beside 'plan' only")
            return
        for key in sorted(draft.filled.form.model_fields_set - ALONGSIDE):
            self._complain(draft, key, f"{quoted(key)} cannot stand beside 'plan'", "write it in that plan")
        if self._read is None:
            self._complain(draft, "plan", "a plan that is inside another one cannot have one inside itself")
        elif len(self._inner) == MOST:
            self._complain(draft, "plan", f"a plan has at most {MOST} others inside it")
        elif draft.filled.form.plan is not None:
            draft.inner = self._inner_of(draft, draft.filled.form.plan, self._read)

    def check_needs(self) -> None:
        """Report a quorum that no end of their needs could reach."""
        for draft in self._drafts.values():
            check_quorum(draft, self._problems)

    def _inner_of(self, draft: Draft, file: str, read: Read) -> Inner | None:
        params = {name: self._filled_in(draft, name, value) for name, value in (draft.filled.form.params or {}).items()}
        try:
            path = self._attachments.one(file)
            inner = Inner(draft.id, read(path, self._attachments.prompt(path), params))
        except FolderError as error:
            self._complain(draft, "plan", f"'plan': {error}")
            return None
        except Invalid as invalid:
            for problem in invalid.problems:
                self._problems.add(problem, problem.message, task=problem.task, hint=problem.hint, file=problem.file)
            return None
        for what, found in {
            "mode: waves": inner.plan.mode is Pace.WAVES,
            "a deadline": inner.plan.deadline is not None,
            "on_budget: wait": inner.plan.on_budget == "wait",
        }.items():
            if found:
                self._complain(draft, "plan", f"{path!r} has {what}, which a plan inside another one cannot have")
        self._drafts[draft.id], self._inner[draft.id] = draft, inner
        return inner

    def _filled_in(self, draft: Draft, name: str, value: str) -> str:
        def complain(_: int, message: str, hint: str | None) -> None:
            self._problems.add(draft.filled.at("params", name), message, task=draft.id, hint=hint)

        pieces = templates.read(value, self._scope, complain, where="a parameter")
        return "".join(str(run) for run in templates.fill_in(pieces, ""))

    def build(self, draft: Draft, passing: Passing) -> Iterator[tuple[Task, dict[str, str]]]:
        """The tasks of the plan that a task stands for, with the sources of their values."""
        if draft.inner is not None:
            for task, inside in zip(draft.inner.tasks(draft, passing), draft.inner.plan.tasks, strict=True):
                yield task, dict(draft.inner.planned.sources[inside.id])

    def joined(self, agents: Iterable[Agent]) -> tuple[Agent, ...]:
        """The agents of all plans. Two that are called the same must be the same one."""
        found = {agent.called: agent for agent in agents}
        for id, inner in self._inner.items():
            for agent in inner.plan.agents:
                if found.setdefault(agent.called, agent) != agent:
                    message = f"its agent {quoted(agent.called)} is another one than that of the same name outside"
                    self._complain(self._drafts[id], "plan", message, "give one of them another name")
        return tuple(found.values())

    def check_mode(self, mode: str) -> None:
        """Report plans inside a plan in waves: a wave is of single tasks."""
        if mode == Pace.WAVES:
            for draft in self._drafts.values():
                self._complain(draft, "plan", "a plan in waves cannot have another one inside it", "use mode: window")

    def parts(self, most: int) -> tuple[Part, ...]:
        """What each of them gets of the run: never more places than there are."""
        return tuple(
            Part(id=id, places=min(inner.plan.max_concurrency, most), budget=inner.plan.budget)
            for id, inner in self._inner.items()
        )

    def _complain(self, draft: Draft, key: str, message: str, hint: str | None = None) -> None:
        self._problems.add(draft.filled.at(key), message, task=draft.id, hint=hint)


@dataclass(frozen=True)
class Below:
    """The folder of a plan that lies in a folder of another plan: its paths begin there."""

    folder: Folder
    below: str

    @classmethod
    def of(cls, folder: Folder, file: str) -> Folder:
        """The folder of a file."""
        below, _, _ = file.rpartition("/")
        return cls(folder, below) if below else folder

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self.folder.read(self._whole(path))

    def match(self, pattern: str) -> list[str]:
        """The files that match."""
        return [path.removeprefix(f"{self.below}/") for path in self.folder.match(self._whole(pattern))]

    def _whole(self, path: str) -> str:
        return path if path.startswith(("/", "~")) else f"{self.below}/{path}"  # what is not allowed stays so
