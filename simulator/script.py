"""The script: an ordered list of rules that say what happens to which request. The first that matches wins.

    config: {ttft: 0.1}                       # optional, see config.py
    rules:
      - when: {task: scan, nth: 1}            # also: contains, plan, model, asks, batch, nth: [N, M]; all must hold
        then: {fault: rate_limit, retry_after: 2}
      - when: {contains: summary}
        then: {answer: "Short.", stop_reason: max_tokens}
      - then: {answer_tokens: 400, tokens_per_second: 20}

`nth` counts, from 1, the requests that match the other conditions of its rule, whichever rule wins in the end.

A script may be given for one plan: its rules are tried before the general ones, for the requests of that plan alone,
and so are its settings, but for those of the whole provider (config.WHOLE). Scripts of several plans stand beside
each other.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, JsonValue, ValidationError, model_validator

from simulator.config import WHOLE, Config, Positive, Strict
from simulator.faults import Fault
from simulator.prompt import Prompt

Way = Literal["message", "create", "request"]
"""How a prompt comes: as a message, in a batch that is being made, or as a request that the batch works on."""

Natural = Annotated[int, Field(ge=0)]


class ScriptError(ValueError):
    """A script that cannot be followed; the message says where and why."""


class When(Strict):
    """Conditions on a request; an empty one matches all."""

    contains: str | None = None
    task: str | None = None
    plan: str | None = None
    model: str | None = None
    nth: Positive | tuple[Positive, Positive] | None = None
    asks: str | None = Field(default=None, description="the title of the schema that the answer must have")
    batch: Literal["create", "request"] | None = Field(
        default=None, description="the making of a batch, which no other rule is about, or the requests in one"
    )

    def matches(self, prompt: Prompt, way: Way) -> bool:
        """Whether all but `nth` hold."""
        return (
            (self.batch == way if "create" in (self.batch, way) else self.batch in (None, way))
            and (self.contains is None or self.contains in prompt.content)
            and (self.task is None or self.task == prompt.task)
            and (self.plan is None or self.plan == prompt.plan)
            and (self.model is None or self.model == prompt.model)
            and (self.asks is None or (prompt.schema is not None and self.asks == prompt.schema.get("title")))
        )

    def counts(self, number: int) -> bool:
        """Whether `nth` holds for the request of this number."""
        first, last = self.nth if isinstance(self.nth, tuple) else (self.nth, self.nth)
        return (first is None or number >= first) and (last is None or number <= last)


class Then(Fault):
    """What happens: an answer, how fast it comes, what is claimed about it, and a fault on its way."""

    answer: str | None = None
    answer_bytes: Natural | None = None
    answer_tokens: Natural | None = None
    summary: str | bool = Field(
        default=True, description="what closes the answer where a summary is asked for: true, made up; false, nothing"
    )
    items: Natural | None = Field(default=None, description="how many a list has, in an answer by a schema")
    violates: bool = Field(default=False, description="answer with what the schema does not allow")
    accepts: bool = Field(default=True, description="of a review: what it says")
    tool: str | None = Field(default=None, description="answer with a call of this tool; `answer` is its input as JSON")
    stop_reason: str | None = None
    usage: dict[str, JsonValue] | None = Field(default={}, description="claimed in place of the truth; null: missing")
    cache_read: Natural | None = Field(default=None, description="in place of what the cache holds, as cache_write")
    cache_write: Natural | None = None
    ttft: Annotated[float, Field(ge=0)] | None = None
    tokens_per_second: Annotated[float, Field(ge=0)] | None = None
    expires: bool = Field(default=False, description="of a request in a batch: it is not done in time")
    hangs: bool = Field(
        default=False, description="of a request in a batch: it is not done until the batch is cancelled"
    )

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if sum(size is not None for size in (self.answer, self.answer_bytes, self.answer_tokens)) > 1:
            raise ValueError("give one of answer, answer_bytes and answer_tokens")
        if self.tool and self.answer is None:
            raise ValueError("tool needs answer: the text of its input")
        return self


class Rule(Strict):
    """When this is asked, then that happens."""

    when: When = When()
    then: Then


class Document(Strict):
    """A script file, or the body of POST /script."""

    config: Config = Config()
    rules: tuple[Rule, ...] = ()


class Script:
    """Rules, and how often each has been asked for."""

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self._rules = rules
        self._matched = [0] * len(rules)

    def next(self, prompt: Prompt, way: Way) -> Then | None:
        """What happens to this request, if a rule says so; it is counted for every rule it matches."""
        chosen: Then | None = None
        for index, rule in enumerate(self._rules):
            if rule.when.matches(prompt, way):
                self._matched[index] += 1
                if chosen is None and rule.when.counts(self._matched[index]):
                    chosen = rule.then
        return chosen


class Scripts:
    """The general script, and beside it one for each plan that has its own."""

    def __init__(self) -> None:
        self._general = Script()
        self._own: dict[str, tuple[Script, dict[str, object]]] = {}

    def replace(self, document: Document, plan: str | None = None) -> None:
        """Take the rules, counted from zero: the general ones, or those of a plan with its settings."""
        if plan is None:
            self._general = Script(document.rules)
        elif not (document.rules or document.config.model_fields_set):
            self._own.pop(plan, None)
        else:
            check_for_plan(document, plan)
            self._own[plan] = Script(document.rules), document.config.model_dump(exclude_unset=True)

    def next(self, prompt: Prompt, way: Way = "message") -> Then:
        """What happens to this request: the word of its plan's script, else of the general one. Both count it."""
        own, _ = self._own.get(prompt.plan or "", (None, {}))
        words = [script.next(prompt, way) for script in (own, self._general) if script is not None]
        return next((word for word in words if word is not None), Then())

    def config_for(self, prompt: Prompt, config: Config) -> Config:
        """The settings for this request: the general ones, with what its plan's script changes."""
        _, changes = self._own.get(prompt.plan or "", (None, {}))
        return config.changed(changes) if changes else config


def read_script(text: str) -> Document:
    """A script in YAML, or in JSON, which is YAML too."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"not YAML: {_syntax(error)}") from error
    return check_script({} if loaded is None else loaded)


def check_script(document: object) -> Document:
    """A script from plain data."""
    try:
        return Document.model_validate(document)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise ScriptError("; ".join(f"{_place(item['loc'])}: {item['msg']}" for item in problems)) from error


def check_for_plan(document: Document, plan: str | None = None) -> None:
    """Refuse what cannot hold for one plan alone; its name is not always known yet."""
    if unfit := sorted(document.config.model_fields_set & WHOLE):
        raise ScriptError(f"config.{unfit[0]}: holds for the whole simulator, and not for one plan")
    for number, rule in enumerate(document.rules):
        if plan is not None and rule.when.plan not in (None, plan):
            raise ScriptError(f"rules.{number}.when.plan: {rule.when.plan!r} in a script for the plan {plan!r}")


def _syntax(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    words = [word for word in (error.context, error.problem) if word]
    return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {', '.join(words)}"


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "script"
