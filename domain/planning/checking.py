"""What the tasks of a draft are made of: its agent, prompt, files, payload and question, each checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from domain.forms import Filled
from domain.grammar import ApprovalForm, DefaultsForm, FilesForm, ListForm
from domain.models import Agent, Expectation, File, Form, Placement, Review
from domain.notation import MAX_QUESTION
from domain.planning import templates
from domain.planning.answering import Answering
from domain.planning.attachments import Attachments, FolderError, is_address
from domain.planning.conditions import check_merge, check_quorum, check_time_limit
from domain.planning.drafts import Draft, Drafts, written_needs
from domain.planning.effective import Effective
from domain.planning.lists import Lists
from domain.planning.permitting import Permitting, Wanted
from domain.planning.staffing import Choice, Staffing
from domain.planning.templates import Piece, Scope, Where
from domain.problems import Located, Problems, quoted
from domain.tree import Mapping as MappingNode
from domain.tree import Node, Scalar, Sequence, Source

Sources = dict[str, str]


@dataclass(frozen=True)
class Checked:
    """A draft that was checked, with what its tasks are made of."""

    draft: Draft
    agent: Agent | None
    asked: tuple[str, ...]
    """The capabilities that the agent was chosen by, if it was."""
    prompt: list[Piece]
    files: tuple[File, ...]
    question: list[Piece]
    scope: Scope
    sources: Sources
    review: Review | None = None
    expect: Expectation | None = None


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
        permitting: Permitting,
        answering: Answering,
        params: Mapping[str, str],
        lists: Lists,
        problems: Problems,
        inside: bool = False,
    ) -> None:
        """`inside`: whether the plan stands inside another one, which may give more to its first tasks."""
        self._lists = lists
        self._permitting = permitting
        self._answering = answering
        self._source = source
        self._drafts = drafts
        self._effective = effective
        self._defaults = effective.defaults
        self._staffing = staffing
        self._attachments = attachments
        self._params = params
        self._problems = problems
        self._inside = inside
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
            schema=self._answering.of_task,
        )
        sources: Sources = {}
        files, wanted = self._files(draft, sources)
        choice = self._choice(draft, sources)
        agent = self._agent(draft, choice, wanted)
        prompt = self._prompt(draft, scope, sources)
        draft.by_field = {id for piece in prompt if isinstance(piece, Placement) and piece.field for id in piece.tasks}
        self._check_forms(draft)
        self._check_payload(draft, scope, sources)
        question = self._question(draft, scope)
        self._answering.check(draft)
        review, source = self._answering.review(draft, agent)
        if source is not None:
            sources["review"] = source
        check_quorum(draft, self._problems, self._drafts.width)
        check_merge(draft, prompt, files, self._problems, inside=self._inside)
        check_time_limit(draft, agent, self._effective, self._problems)
        asked = choice.asked if choice is not None else ()
        expect = self._expectation(draft, sources)
        return Checked(draft, agent, asked, prompt, files, question, scope, sources, review, expect)

    def _expectation(self, draft: Draft, sources: Sources) -> Expectation | None:
        form = draft.filled.form.expect
        if form is None:
            return None
        sources["expect"] = "task"
        mentions = form.mentions or ()
        if isinstance(mentions, ListForm):
            mentions = self._lists.items(draft, mentions.param, "expect", "mentions")
        elif form.min_words is None and not mentions:
            hint = "expect: {mentions: [TEXT], min_words: 50}"
            self._problems.add(draft.filled.at("expect"), "'expect' expects nothing", task=draft.id, hint=hint)
        return Expectation(mentions=tuple(mentions), min_words=form.min_words or 0)

    def _choice(self, draft: Draft, sources: Sources) -> Choice | None:
        sources["agent"] = "task"
        choice = self._staffing.choose(draft.filled, self._problems, draft.id)
        if choice is None:
            sources["agent"] = "defaults"
            choice = self._default_choice
        if choice is None and self._defaults is not None:
            self._problems.add(draft.filled.node, "'agent' or 'capability' is missing", task=draft.id)
        return choice

    def _agent(self, draft: Draft, choice: Choice | None, wanted: Wanted) -> Agent | None:
        wanted = replace(wanted, tools=self._tools(draft))
        agent = self._permitting.choose(draft, choice, wanted) if choice is not None else None
        if agent is not None:
            self._staffing.use(agent)
        return agent

    def _tools(self, draft: Draft) -> dict[str, Located]:
        given = self._effective.given(draft, "tools")
        return {name: given[0].at("tools", index) for index, name in enumerate(given[0].form.tools)} if given else {}

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

    def _files(self, draft: Draft, sources: Sources) -> tuple[tuple[File, ...], Wanted]:
        """The files of every task of the draft, and where each file or address is named that one of them wants."""
        given = self._effective.given(draft, "files")
        sources["files"] = given[1] if given is not None else "built in"
        found: dict[str, File] = {}
        places: dict[str, Located] = {}
        urls: dict[str, Located] = {}
        for index, pattern in enumerate(given[0].form.files if given is not None else ()):
            at = given[0].at("files", index) if given is not None else draft.filled.node
            try:
                meant = self._lists.path(pattern, at, draft.id)
                if meant is not None and is_address(meant):
                    urls.setdefault(meant, at)
                    continue
                for path in self._attachments.matching(meant) if meant is not None else ():
                    found[path] = self._attachments.file(path)
                    places.setdefault(path, at)
            except FolderError as error:
                self._problems.add(at, f"'files': {error}", task=draft.id)
        if isinstance(draft.filled.form.for_each, FilesForm):
            sources["files"] = "task"
            at = draft.filled.at("for_each", "files")
            for path in draft.items:
                places.setdefault(path, at)
                try:
                    self._attachments.file(path)
                except FolderError as error:
                    self._problems.add(at, f"'for_each': {error}", task=draft.id)
        return tuple(found.values()), Wanted(files=places, urls=urls)

    def _check_payload(self, draft: Draft, scope: Scope, sources: Sources) -> None:
        given = self._effective.given(draft, "payload")
        sources["payload"] = given[1] if given is not None else "built in"
        for node, is_key in _texts(given[0].node.entries["payload"].value) if given is not None else ():
            if "{{" in str(node.value):
                if is_key:
                    self._problems.add(node, "a key of a payload cannot hold '{{'", task=draft.id)
                else:
                    self._read(node, str(node.value), draft, scope, "a payload")

    def _check_forms(self, draft: Draft) -> None:
        """Report edges that say `summary` where a field is placed: fields are of the whole result."""
        for name, _, form, at in written_needs(draft):
            if form is Form.SUMMARY and draft.by_field.intersection(self._drafts.lookup(name) or ()):
                message = f"passes {quoted(name)} as a summary, and places a field of it"
                self._problems.add(at, message, task=draft.id, hint="say 'pass: full', or nothing")

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
