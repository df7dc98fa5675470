"""What may be written in a plan and in agents.yaml: the keys, and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, Tag, model_validator

from domain.notation import (
    Attempts,
    Capabilities,
    Concurrency,
    DeadlineText,
    Dollars,
    Expiry,
    FormName,
    Id,
    Item,
    Label,
    LatencyName,
    LongDuration,
    MaxTokens,
    Name,
    NotNothing,
    OnBudget,
    PaceName,
    Payload,
    PolicyName,
    PriorityName,
    Prose,
    Question,
    Quorum,
    Text,
    Timeout,
    one_of,
)
from domain.problems import Mistake


class Form(BaseModel):
    """Keys as somebody wrote them. `later` are those of a later version; what is in those `elsewhere` is read apart."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    later: ClassVar[frozenset[str]] = frozenset()
    elsewhere: ClassVar[frozenset[str]] = frozenset()


class FilesForm(Form):
    """`for_each: {files: PATTERN}`: one task per file."""

    later: ClassVar[frozenset[str]] = frozenset({"from"})
    files: Prose


class EdgeForm(Form):
    """`needs: {ID: {policy: ..., pass: ...}}`."""

    policy: PolicyName = "tolerate"
    form: Annotated[FormName | None, NotNothing, Field(alias="pass")] = None


class ParamForm(Form):
    """`params: {NAME: {default: TEXT}}`."""

    default: Text | None = None


class ApprovalForm(Form):
    """`approval: {ask: TEXT, expires: DURATION, on_expiry: ...}`."""

    model_config = ConfigDict(json_schema_extra={"dependentRequired": {"on_expiry": ["expires"]}})
    ask: Annotated[Question | None, NotNothing] = None
    expires: Annotated[LongDuration | None, NotNothing] = None
    on_expiry: Annotated[Expiry | None, NotNothing] = None

    @model_validator(mode="after")
    def _expires_or_does_not(self) -> ApprovalForm:
        if self.on_expiry is not None and self.expires is None:
            raise Mistake("has 'on_expiry' but never expires", "add 'expires', or remove 'on_expiry'")
        return self


Edge = Annotated[
    Annotated[PolicyName, Tag("a text")] | Annotated[EdgeForm, Tag("a mapping")],
    one_of("must be require, tolerate or optional"),
]
Needs = Annotated[
    Annotated[list[Text], Tag("a list")] | Annotated[dict[str, Edge], Tag("a mapping")],
    one_of("must be a list of ids, or a mapping of ids to policies"),
]
ForEach = Annotated[
    Annotated[list[Item], Tag("a list")] | Annotated[FilesForm, Tag("a mapping")],
    one_of("must be a list of items, or {files: PATTERN}"),
]
Approval = Annotated[
    Annotated[bool, Tag("true or false")] | Annotated[ApprovalForm, Tag("a mapping")],
    one_of("must be true, false, or {ask: TEXT, expires: DURATION, on_expiry: reject}"),
]


class DefaultsForm(Form):
    """The keys of a task that may also stand in `defaults`."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"budget_usd", "merge", "plan", "replan", "review", "schema", "workspace"}
    )
    agent: Text | None = None
    capability: Capabilities | None = None
    type: Label | None = None
    prompt_file: Prose | None = None
    files: list[Prose] | None = None
    payload: Payload | None = None
    approval: Approval | None = None
    priority: PriorityName | None = None
    deadline: DeadlineText | None = None
    timeout: Timeout | None = None
    time_limit: LongDuration | None = None
    attempts: Attempts | None = None
    max_tokens: MaxTokens | None = None
    latency: LatencyName | None = None


class TaskForm(DefaultsForm):
    """One entry of `tasks`."""

    id: Id
    for_each: ForEach | None = None
    prompt: Prose | None = None
    needs: Needs | None = None
    quorum: Quorum | None = None


class AgentForm(Form):
    """One entry of `agents`."""

    later: ClassVar[frozenset[str]] = frozenset({"latency", "rights", "tools", "workspace"})
    name: Label
    version: Annotated[Text, Field(min_length=1, max_length=50)]
    capabilities: list[Label] | None = None
    model: Annotated[Text, Field(min_length=1, max_length=100)]
    max_concurrency: Concurrency | None = None
    timeout: Timeout | None = None
    attempts: Attempts | None = None
    max_tokens: MaxTokens | None = None
    instructions: Annotated[Prose, Field(max_length=100_000)]


class PlanForm(Form):
    """The top of a plan. Tasks, agents and defaults are checked one by one, each on its own."""

    elsewhere: ClassVar[frozenset[str]] = frozenset({"agents", "defaults", "tasks"})
    name: Name | None = None
    max_concurrency: Concurrency | None = None
    mode: PaceName | None = None
    latency: LatencyName | None = None
    deadline: DeadlineText | None = None
    budget_usd: Dollars | None = None
    on_budget: OnBudget | None = None
    params: dict[Name, ParamForm] | None = None
    agents: list[Any] | None = None
    defaults: dict[str, Any] | None = None
    tasks: list[Any] | None = None


class RegistryForm(Form):
    """The top of agents.yaml."""

    elsewhere: ClassVar[frozenset[str]] = frozenset({"agents"})
    agents: list[Any]
