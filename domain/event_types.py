"""What each type of event means, and what its `data` has. The one table behind the JSON Schema and docs/events.md.

What is here is there in every event of a type unless it is said to be left out at times. More may come with later
versions: a reader passes over what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from domain.events import EventType
from domain.values import Usage

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
USD: Schema = {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}
REF: Schema = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
NAMES: Schema = {"type": "array", "items": TEXT}
TOKENS: Schema = {"type": "object", "properties": {kind: {"type": "integer"} for kind in Usage.model_fields}}
ERROR: Schema = {
    "type": "object",
    "properties": {"type": TEXT, "message": TEXT, "attempt": NUMBER, "retryable": FLAG},
    "required": ["type", "message"],
}
CALLS: Schema = {"type": "array", "items": {"type": "object", "properties": {"model": TEXT, "tokens": TOKENS}}}
CENSUS: Schema = {"type": "object", "additionalProperties": NUMBER}
DECISION: Schema = {"type": "object", "properties": {"answer": TEXT, "at": TIME}, "required": ["answer", "at"]}


@dataclass(frozen=True)
class Fact:
    """One key of an event's data."""

    name: str
    schema: Schema
    meaning: str
    always: bool = True
    nothing: bool = False
    """Whether it may be null."""

    @property
    def json_schema(self) -> Schema:
        """What may stand there."""
        schema = {"anyOf": [self.schema, {"type": "null"}]} if self.nothing else self.schema
        return {**schema, "description": self.meaning}


@dataclass(frozen=True)
class Described:
    """A type of event: what it says, of whom, with which data."""

    meaning: str
    of_task: bool
    facts: tuple[Fact, ...] = ()

    @property
    def json_schema(self) -> Schema:
        """Of its data."""
        return {
            "type": "object",
            "description": self.meaning,
            "properties": {fact.name: fact.json_schema for fact in self.facts},
            "required": [fact.name for fact in self.facts if fact.always],
        }


def _of_run(meaning: str, *facts: Fact) -> Described:
    return Described(meaning, of_task=False, facts=facts)


def _of_task(meaning: str, *facts: Fact) -> Described:
    return Described(meaning, of_task=True, facts=facts)


def _at_times(name: str, schema: Schema, meaning: str, *, nothing: bool = False) -> Fact:
    return Fact(name, schema, meaning, always=False, nothing=nothing)


BY = Fact("by", TEXT, "who asked for it")
NOTE = _at_times("note", TEXT, "why, in that person's words", nothing=True)
BY_A_PERSON = (_at_times("by", TEXT, "who asked for it, if a person did", nothing=True), NOTE)
PLACE = (
    Fact("model", TEXT, "the model it stands before; null with no agent: the whole account", nothing=True),
    _at_times("agent", TEXT, "the agent it stands before, when that is busy everywhere"),
)
MONEY = (
    Fact("budget_usd", USD, "the budget"),
    Fact("spent_usd", USD, "what is spent of it, also by runs before this one in its family"),
    Fact("reserved_usd", USD, "what is set aside for tasks at work"),
)
COST = (
    _at_times("tokens", TOKENS, "what its last call has used"),
    _at_times("unsettled", TOKENS, "what that call may have used on top, at most"),
)
OUTPUT = (
    _at_times("output_ref", REF, "its answer, or what there is of one that does not count", nothing=True),
    _at_times("output_bytes", NUMBER, "how long that is"),
    _at_times("summary_ref", REF, "its summary, where one was asked for"),
    _at_times("summary_bytes", NUMBER, "how long that is"),
)
REUSED = (
    _at_times("reused", TEXT, "the earlier run whose result was taken over"),
    _at_times("saved", TOKENS, "what that had used"),
    _at_times("saved_usd", USD, "what that had cost"),
    _at_times("approval", DECISION, "what a person had said to it there"),
)
ACCOUNTED = _at_times("accounted", FLAG, "false if it does not tell all of its calls: the ledger is being asked")
END = (
    Fact("status", TEXT, "the state in which it ended"),
    Fact("attempts", NUMBER, "calls that counted as attempts"),
    *COST,
    *OUTPUT,
    _at_times("waited_s", SECONDS, "how long its last attempt waited for quota"),
    _at_times(
        "aside",
        CALLS,
        "calls beside its last one: reviews, a summary, answers not used; they are in the tokens",
    ),
    _at_times("batched", FLAG, "whether it went in a batch, at half the price"),
    ACCOUNTED,
)

TYPES: dict[EventType, Described] = {
    EventType.RUN_SUBMITTED: _of_run("A plan was handed over, and its supervisor has begun."),
    EventType.RUN_STARTED: _of_run(
        "Its tasks may start.",
        Fact("tasks", NUMBER, "how many there are"),
        Fact("max_concurrency", NUMBER, "how many may be at work at once"),
        _at_times("mode", TEXT, "how places are filled: window or waves"),
    ),
    EventType.RUN_PAUSED: _of_run("Nothing new starts until it is resumed.", BY, NOTE),
    EventType.RUN_RESUMED: _of_run("It goes on after a pause.", BY, NOTE),
    EventType.RUN_CHANGED: _of_run(
        "A person has changed how it goes on.",
        BY,
        NOTE,
        _at_times("max_concurrency", NUMBER, "how many may be at work at once from now on"),
        _at_times("budget_usd", USD, "what it may spend from now on"),
        _at_times("stops", NAMES, "tasks at work that are being stopped"),
        _at_times("asks_at", NAMES, "walls at which it asks again now"),
    ),
    EventType.RUN_WAITING: _of_run(
        "Nothing is at work: a person, a wall, money or a time is awaited.",
        Fact("until", TIME, "when it looks again by itself, if it does", nothing=True),
    ),
    EventType.RUN_COMPLETED: _of_run(
        "The run has ended, well or not. It is its last word.",
        Fact("status", TEXT, "the state in which it ended"),
        _at_times("census", CENSUS, "how its tasks ended"),
        _at_times("peak", NUMBER, "most tasks that were at work at once"),
        _at_times("error", ERROR, "the bug of ours that ended it"),
        _at_times("by", TEXT, "who has cancelled it, if a person did and said so"),
    ),
    EventType.PLAN_CHANGED: _of_run(
        "Another plan has taken the place of the run's: a person changed it, or it grew by the answer of a task.",
        Fact("plan_ref", REF, "the plan as it is from now on"),
        Fact("tasks", NUMBER, "how many tasks it has"),
        Fact("added", NAMES, "new tasks, the first hundred; each has its own task.created"),
        Fact("edited", NAMES, "tasks that are otherwise now, the first hundred"),
        Fact("removed", NAMES, "tasks that are in the plan no more, the first hundred"),
        Fact("counts", CENSUS, "how many were added, edited and removed"),
        _at_times("task", TEXT, "the task by whose answer it grew"),
        *BY_A_PERSON,
    ),
    EventType.TASK_CREATED: _of_task("It is in the plan of this run.", Fact("agent", TEXT, "who is to do it")),
    EventType.TASK_READY: _of_task("It could start, and waits for a place."),
    EventType.TASK_STARTED: _of_task(
        "Its agent is at work.", _at_times("reserved_usd", USD, "what is set aside for it")
    ),
    EventType.TASK_WAITING: _of_task(
        "It waits outside, and holds no place.",
        Fact("for", TEXT, "for what: approval, wall, pool, budget, pause, worker, batch"),
        Fact("what", TEXT, "that in words; the item of a list is left out of a question"),
        Fact("until", TIME, "until when, if that is known", nothing=True),
        _at_times("since", TIME, "since when, if it has waited for it before"),
        _at_times("cap", TEXT, "of money: whose cap it is, when it is not the run's budget"),
    ),
    EventType.TASK_RETRIED: _of_task(
        "An attempt was in vain; or, without an error, it is done again because somebody asked.",
        _at_times("attempt", NUMBER, "which attempt it was"),
        _at_times("error", ERROR, "why it was in vain"),
        _at_times("at", TIME, "when it ended"),
        *COST,
        _at_times("model", TEXT, "who was asked, when it was not the agent's model"),
        _at_times("batched", FLAG, "whether it went in a batch, at half the price"),
        *BY_A_PERSON,
    ),
    EventType.TASK_COMPLETED: _of_task("It has succeeded.", *END, *REUSED),
    EventType.TASK_FAILED: _of_task(
        "It has failed, timed out or was cancelled at work.", *END, Fact("error", ERROR, "why"), *REUSED
    ),
    EventType.TASK_SKIPPED: _of_task(
        "It ended without being done, or was stopped.",
        Fact("status", TEXT, "the state in which it ended"),
        Fact("reason", TEXT, "why", nothing=True),
        Fact("cause", TEXT, "the task that it is because of, if any", nothing=True),
        *BY_A_PERSON,
        _at_times("attempts", NUMBER, "calls that counted as attempts"),
        *COST,
        *OUTPUT,
        ACCOUNTED,
        _at_times("error", ERROR, "how it had ended in the earlier run"),
        *REUSED,
    ),
    EventType.TASK_SETTLED: _of_task(
        "It had ended without telling all its calls: the ledger has, and these figures come on top.",
        Fact("attempts", NUMBER, "calls that counted as attempts"),
        Fact("tokens", TOKENS, "what was not told before"),
        Fact("unsettled", TOKENS, "what may have been used on top, at most"),
        _at_times("cost_usd", USD, "what that costs"),
        _at_times("unsettled_usd", USD, "what it may cost on top, at most"),
        Fact("output_ref", REF, "what there is of an answer", nothing=True),
        Fact("output_bytes", NUMBER, "how long that is"),
    ),
    EventType.CALL_MADE: _of_task(
        "A model was asked. What was said and answered, and what there was to read, is told by hashes alone.",
        Fact("agent", TEXT, "who asked", nothing=True),
        Fact("model", TEXT, "who was asked"),
        Fact("attempt", NUMBER, "which attempt of the task it was"),
        _at_times("step", NUMBER, "which step of the task: another one each time that a person has it done again"),
        _at_times("request", NUMBER, "which request with this prompt it was in the step"),
        _at_times("at", TIME, "when it was made"),
        Fact("tokens", TOKENS, "what it used"),
        Fact("cost_usd", USD, "what that costs, where there is a price", nothing=True),
        _at_times("unsettled", TOKENS, "what it may have used on top, at most"),
        _at_times("unsettled_usd", USD, "what that would cost", nothing=True),
        Fact("prompt", TEXT, "hash of what was said"),
        Fact("answer", TEXT, "hash of what was answered, if there was an answer", nothing=True),
        _at_times("reads", TEXT, "hash of the list of what its agent was given to read"),
        _at_times("error", TEXT, "why it brought no answer that is used"),
        _at_times("batched", FLAG, "whether it went in a batch, at half the price"),
        _at_times("amends", FLAG, "whether it was told of before, as lost"),
    ),
    EventType.RIGHT_REFUSED: _of_task(
        "An agent lacked a right, and the call was not made.",
        Fact("agent", TEXT, "who"),
        Fact("right", TEXT, "models, tools, data, regions or budget_usd; null: it may do nothing", nothing=True),
        Fact("thing", TEXT, "what it wanted, as a right would name it"),
        _at_times("pattern", TEXT, "what was withdrawn and matches it", nothing=True),
        _at_times("by", TEXT, "who withdrew it", nothing=True),
        _at_times("at", TIME, "when", nothing=True),
    ),
    EventType.REVIEW_GIVEN: _of_task(
        "Another agent has judged an answer to it; told when the task has ended.",
        Fact("by", TEXT, "who: name and version"),
        Fact("accepted", FLAG, "whether others may use the answer"),
        Fact("try", NUMBER, "which answer it was, from 1 on"),
        _at_times("ref", REF, "what the reviewer said"),
    ),
    EventType.WAVE_STARTED: _of_run(
        "The next wave begins, in a plan that runs in waves.",
        Fact("number", NUMBER, "which one"),
        Fact("tasks", NAMES, "its tasks"),
    ),
    EventType.APPROVAL_NEEDED: _of_task(
        "A person must approve its start.", Fact("expires", TIME, "until when, if there is a limit", nothing=True)
    ),
    EventType.APPROVAL_GIVEN: _of_task("A person has approved it.", BY, NOTE),
    EventType.APPROVAL_REFUSED: _of_task("A person has rejected it.", BY, NOTE),
    EventType.APPROVAL_EXPIRED: _of_task(
        "Nobody has answered in time.", Fact("then", TEXT, "what the plan says to that: approve or reject")
    ),
    EventType.BUDGET_LOW: _of_run("Little of the budget is left.", *MONEY),
    EventType.BUDGET_STOPPED: _of_run("The budget covers nothing that is left: the run ends.", *MONEY),
    EventType.QUOTA_WALL: _of_run(
        "The provider turns calls away, and what it concerns waits; told again when its end moves.",
        *PLACE,
        Fact("kind", TEXT, "rate, spend, key, model, unreachable, overload, disk, pool"),
        Fact("what", TEXT, "that in words"),
        Fact("until", TIME, "when somebody asks again"),
        Fact("told", FLAG, "whether the provider has named that time"),
        Fact("probe", TEXT, "the task that is sent to find out, if one is", nothing=True),
    ),
    EventType.QUOTA_CLEARED: _of_run("The wall is gone.", *PLACE),
}


def table() -> Iterator[str]:
    """All of it as Markdown, for docs/events.md: a row for each type; `?` is behind what is left out at times."""
    yield "| type | of | says | data |"
    yield "|---|---|---|---|"
    for type, described in TYPES.items():
        facts = "; ".join(f"`{fact.name}`{'' if fact.always else '?'} {fact.meaning}" for fact in described.facts)
        yield f"| `{type}` | {'task' if described.of_task else 'run'} | {described.meaning} | {facts} |"
