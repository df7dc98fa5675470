"""What the tasks of a draft are made of: its agent, prompt, files, payload and question, each checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from domain.forms import Filled
from domain.grammar import ApprovalForm, DefaultsForm, FilesForm
from domain.models import Agent, File
from domain.notation import MAX_QUESTION
from domain.planning import templates
from domain.planning.attachments import Attachments, FolderError
from domain.planning.conditions import check_quorum, check_time_limit
from domain.planning.drafts import Draft, Drafts
from domain.planning.effective import Effective
from domain.planning.staffing import Staffing
from domain.planning.templates import Piece, Scope, Where
from domain.problems import Problems
from domain.tree import Mapping as MappingNode
from domain.tree import Node, Scalar, Sequence, Source

Sources = dict[str, str]


@dataclass(frozen=True)
class Checked:
    """A draft that was checked, with what its tasks are made of."""

    draft: Draft
    agent: Agent | None
    prompt: list[Piece]
    files: tuple[File, ...]
    question: list[Piece]
    scope: Scope
    sources: Sources


class Checker:
    """Checks drafts one by one against all that the plan has: agents, parameters, files, other tasks."""

    def __init__(
        self,
        *,
        source: Source,
        drafts: Drafts,
        effective: Effective,
        staffing: Staffing,
        attachments: Attachments,
        params: Mapping[str, str],
        problems: Problems,
    ) -> None:
        self._source = source
        self._drafts = drafts
        self._effective = effective
        self._defaults = effective.defaults
        self._staffing = staffing
        self._attachments = attachments
        self._params = params
        self._problems = problems
        self._default_choice = staffing.choose(self._defaults, problems, None) if self._defaults else None

    def check(self, draft: Draft) -> Checked:
        """What the tasks of a draft are made of. Mistakes are reported, and what is wrong is left out."""
        scope = Scope(
            params=self._params,
            has_item=draft.fans_out,
            tasks=self._drafts.lookup,
            broken=self._drafts.broken,
            needed=None if "needs" in draft.filled.wrong else draft.needs.keys(),
            suggest=self._drafts.suggest,
        )
        sources: Sources = {}
        agent = self._agent(draft, sources)
        prompt = self._prompt(draft, scope, sources)
        files = self._files(draft, sources)
        self._check_payload(draft, scope, sources)
        question = self._question(draft, scope)
        check_quorum(draft, self._problems)
        check_time_limit(draft, agent, self._effective, self._problems)
        return Checked(draft, agent, prompt, files, question, scope, sources)

    def _agent(self, draft: Draft, sources: Sources) -> Agent | None:
        sources["agent"] = "task"
        choice = self._staffing.choose(draft.filled, self._problems, draft.id)
        if choice is None:
            sources["agent"] = "defaults"
            choice = self._default_choice
        if choice is None:
            if self._defaults is not None:
                self._problems.add(draft.filled.node, "'agent' or 'capability' is missing", task=draft.id)
            return None
        if choice.agent is not None:
            self._staffing.use(choice.agent)
        return choice.agent

    def _prompt(self, draft: Draft, scope: Scope, sources: Sources) -> list[Piece]:
        form, filled = draft.filled.form, draft.filled
        sources["prompt"] = "task"
        if form.prompt is not None:
            if form.prompt_file is not None:
                message = "give 'prompt' or 'prompt_file', not both"
                self._problems.add(filled.at("prompt_file"), message, task=draft.id)
            return self._read(filled.at("prompt"), form.prompt, draft, scope)
        if filled.wrong & {"prompt", "prompt_file"}:
            return []
        given = self._effective.given(draft, "prompt_file")
        if given is not None:
            sources["prompt"] = given[1]
            return self._prompt_from_file(given[0], draft, scope)
        if self._defaults is not None and "prompt_file" not in self._defaults.wrong:
            self._problems.add(filled.node, "'prompt' or 'prompt_file' is missing", task=draft.id)
        return []

    def _prompt_from_file(self, filled: Filled[DefaultsForm], draft: Draft, scope: Scope) -> list[Piece]:
        path = filled.form.prompt_file or ""
        try:
            path = self._attachments.one(path)
            text = self._attachments.prompt(path)
        except FolderError as error:
            self._problems.add(filled.at("prompt_file"), f"'prompt_file': {error}", task=draft.id)
            return []
        places = _Places(Source(text), Scalar(text, 1, 1, 0, len(text)))

        def complain(number: int, message: str, hint: str | None) -> None:
            self._problems.add(places[number], message, task=draft.id, hint=hint, file=path)

        return templates.read(text, scope, complain)

    def _read(self, node: Any, text: str, draft: Draft, scope: Scope, where: Where = "a prompt") -> list[Piece]:
        """The pieces of a text of the plan's own file."""
        places = _Places(self._source, node)

        def complain(number: int, message: str, hint: str | None) -> None:
            self._problems.add(places[number], message, task=draft.id, hint=hint)

        return templates.read(text, scope, complain, where=where)

    def _files(self, draft: Draft, sources: Sources) -> tuple[File, ...]:
        given = self._effective.given(draft, "files")
        sources["files"] = given[1] if given is not None else "built in"
        found: dict[str, File] = {}
        for index, pattern in enumerate(given[0].form.files if given is not None else ()):
            try:
                for path in self._attachments.matching(pattern):
                    found[path] = self._attachments.file(path)
            except FolderError as error:
                at = given[0].at("files", index) if given is not None else draft.filled.node
                self._problems.add(at, f"'files': {error}", task=draft.id)
        if isinstance(draft.filled.form.for_each, FilesForm):
            sources["files"] = "task"
            for path in draft.items:
                try:
                    self._attachments.file(path)
                except FolderError as error:
                    self._problems.add(draft.filled.at("for_each", "files"), f"'for_each': {error}", task=draft.id)
        return tuple(found.values())

    def _check_payload(self, draft: Draft, scope: Scope, sources: Sources) -> None:
        given = self._effective.given(draft, "payload")
        sources["payload"] = given[1] if given is not None else "built in"
        for node, is_key in _texts(given[0].node.entries["payload"].value) if given is not None else ():
            if "{{" in str(node.value):
                if is_key:
                    self._problems.add(node, "a key of a payload cannot hold '{{'", task=draft.id)
                else:
                    self._read(node, str(node.value), draft, scope, "a payload")

    def _question(self, draft: Draft, scope: Scope) -> list[Piece]:
        """What a person is asked before the task starts."""
        given = self._effective.given(draft, "approval")
        approval = given[0].form.approval if given is not None else None
        if given is None or not isinstance(approval, ApprovalForm) or approval.ask is None:
            return []
        at = given[0].at("approval", "ask")
        pieces = self._read(at, approval.ask, draft, scope, "a question")
        longest = max(draft.items, key=len, default="")
        if templates.characters(pieces, longest) > MAX_QUESTION:
            message = f"'approval.ask' must be at most {MAX_QUESTION} characters long when it is filled in"
            self._problems.add(at, message, task=draft.id)
        return pieces


class _Places:
    """The places of the `{{` of a text, looked for when one is asked for."""

    def __init__(self, source: Source, node: Any) -> None:
        self._source = source
        self._node = node
        self._found: list[Any] | None = None

    def __getitem__(self, number: int) -> Any:
        if self._found is None:
            self._found = self._node.places(self._source, "{{")
        return self._found[number] if number < len(self._found) else self._node


def _texts(node: Node) -> Iterator[tuple[Scalar, bool]]:
    """The texts in a payload, and whether each is a key: a placeholder in a key is a mistake, not a silence."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        yield node, False
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _texts(item)
    elif isinstance(node, MappingNode):
        for entry in node.entries.values():
            yield entry.key, True
            yield from _texts(entry.value)
