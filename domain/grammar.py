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
    ItemName,
    Label,
    LatencyName,
    Line,
    LongDuration,
    MaxTokens,
    Name,
    NotNothing,
    OnBudget,
    PaceName,
    Pattern,
    Payload,
    PolicyName,
    PriorityName,
    Prose,
    Question,
    Quorum,
    RegionName,
    Scope,
    Text,
    Timeout,
    Tries,
    one_of,
)
from domain.problems import Mistake
from domain.rights import Rights

USUAL_ITEMS = 100
"""Items that a fan-out over the list of a task takes at most, when it does not say."""


class Form(BaseModel):
    """Keys as somebody wrote them. `later` are those of a later version; what is in those `elsewhere` is read apart."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    later: ClassVar[frozenset[str]] = frozenset()
    elsewhere: ClassVar[frozenset[str]] = frozenset()


class FilesForm(Form):
    """`for_each: {files: PATTERN}`: one task per file."""

    files: Prose


class ListForm(Form):
    """`for_each: {param: NAME}`: one task per item of a list that comes as a parameter, such as `crm,billing`."""

    param: Name


class SourceForm(Form):
    """`for_each: {from: TASK, max: N, at_once: N, label: number}`: one task per item of the list that a task makes."""

    source: Annotated[Text, Field(alias="from")]
    max: Annotated[int | None, NotNothing, Field(ge=1, le=500)] = None
    at_once: Annotated[Concurrency | None, NotNothing] = None
    label: Annotated[ItemName | None, NotNothing] = None

    @property
    def most(self) -> int:
        """How many items are taken at most."""
        return self.max or USUAL_ITEMS


class EdgeForm(Form):
    """`needs: {ID: {policy: ..., pass: ...}}`."""

    policy: PolicyName = "tolerate"
    form: Annotated[FormName | None, NotNothing, Field(alias="pass")] = None


class ParamForm(Form):
    """`params: {NAME: {default: TEXT, about: TEXT}}`."""

    default: Text | None = None
    about: Annotated[Line | None, NotNothing, Field(max_length=200)] = None


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
    Annotated[list[Item], Tag("a list")]
    | Annotated[FilesForm, Tag("a mapping")]
    | Annotated[ListForm, Tag("a mapping with 'param'")]
    | Annotated[SourceForm, Tag("a mapping with 'from'")],
    one_of("must be a list of items, {files: PATTERN}, {param: NAME} or {from: TASK}", keys=("param", "from")),
]
Mentions = Annotated[
    Annotated[list[Line], Field(min_length=1, max_length=1_000), Tag("a list")] | Annotated[ListForm, Tag("a mapping")],
    one_of("must be a list of texts, or {param: NAME}"),
]
Approval = Annotated[
    Annotated[bool, Tag("true or false")] | Annotated[ApprovalForm, Tag("a mapping")],
    one_of("must be true, false, or {ask: TEXT, expires: DURATION, on_expiry: reject}"),
]


class ExpectForm(Form):
    """`expect: {mentions: [TEXT], min_words: N}`: what an answer must have. `{param: NAME}`: as in for_each."""

    mentions: Annotated[Mentions | None, NotNothing] = None
    min_words: Annotated[int | None, NotNothing, Field(ge=1, le=100_000)] = None


class ReviewForm(Form):
    """`review: {by: AGENT, tries: N}`."""

    by: Text
    tries: Annotated[Tries | None, NotNothing] = None


class DefaultsForm(Form):
    """The keys of a task that may also stand in `defaults`."""

    later: ClassVar[frozenset[str]] = frozenset({"replan", "workspace"})
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
    budget_usd: Dollars | None = None
    latency: LatencyName | None = None
    tools: list[Label] | None = None
    schema_: Annotated[Payload | None, Field(alias="schema", description="JSON Schema of the answer.")] = None
    review: ReviewForm | None = None


class TaskForm(DefaultsForm):
    """One entry of `tasks`."""

    id: Id
    for_each: ForEach | None = None
    prompt: Prose | None = None
    needs: Needs | None = None
    quorum: Quorum | None = None
    expect: ExpectForm | None = None
    merge: bool | None = None
    plan: Prose | None = None
    params: Annotated[dict[Name, Text] | None, Field(description="Of a task that is a plan: its parameters.")] = None


class RightsForm(Form):
    """`rights: {models: [...], tools: [...], data: [...], regions: [...], budget_usd: ...}`."""

    models: Annotated[list[Pattern] | None, NotNothing] = None
    tools: Annotated[list[Pattern] | None, NotNothing] = None
    data: Annotated[list[Scope] | None, NotNothing] = None
    regions: Annotated[list[Pattern] | None, NotNothing] = None
    budget_usd: Annotated[Dollars | None, NotNothing] = None

    def as_rights(self) -> Rights:
        """What is granted: a key that is not there grants nothing."""
        return Rights.model_validate({key: value for key, value in self.model_dump().items() if value is not None})


class RoleForm(Form):
    """One entry of `roles`."""

    name: Label
    rights: RightsForm


class CheckForm(Form):
    """`check: {prompt: TEXT, expect: TEXT}`: what an agent is asked before it is onboarded."""

    prompt: Annotated[Prose, Field(max_length=10_000)]
    expect: Annotated[Prose, Field(max_length=1_000)]


class AgentForm(Form):
    """One entry of `agents`."""

    later: ClassVar[frozenset[str]] = frozenset({"latency", "tools", "workspace"})
    name: Label
    version: Annotated[Line, Field(min_length=1, max_length=50)]
    capabilities: list[Label] | None = None
    model: Annotated[Line, Field(min_length=1, max_length=100)]
    max_concurrency: Concurrency | None = None
    timeout: Timeout | None = None
    attempts: Attempts | None = None
    max_tokens: MaxTokens | None = None
    budget_usd: Dollars | None = None
    region: RegionName | None = None
    rights: RightsForm | None = None
    roles: list[Label] | None = None
    check: CheckForm | None = None
    instructions: Annotated[Prose, Field(max_length=100_000)]


class ReplanForm(Form):
    """`replan: {after: [ID], rounds: N, max_tasks: N, approval: ..., by: AGENT}`."""

    after: Annotated[list[Text], Field(min_length=1)]
    rounds: Annotated[int | None, NotNothing, Field(ge=1, le=10)] = None
    max_tasks: Annotated[int | None, NotNothing, Field(ge=1, le=1_000)] = None
    approval: Annotated[Approval | None, NotNothing] = None
    by: Annotated[Text | None, NotNothing] = None


class PlaybookForm(Form):
    """`playbook: {when: TEXT, example: {NAME: TEXT}}`: what makes a plan a playbook."""

    when: Annotated[Line, Field(max_length=300)]
    example: dict[Name, Text] = Field(default_factory=dict)


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
    region: RegionName | None = None
    playbook: PlaybookForm | None = None
    replan: ReplanForm | None = None
    params: dict[Name, ParamForm] | None = None
    agents: list[Any] | None = None
    defaults: dict[str, Any] | None = None
    tasks: list[Any] | None = None


class RegistryForm(Form):
    """The top of agents.yaml."""

    elsewhere: ClassVar[frozenset[str]] = frozenset({"agents", "roles"})
    roles: list[Any] | None = None
    agents: list[Any]
