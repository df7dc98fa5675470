"""JSON Schema of what people write and of what scripts read: for editors and for checks outside."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from domain import durations
from domain.event_types import TYPES
from domain.events import EventType
from domain.grammar import AgentForm, DefaultsForm, PlanForm, RegistryForm, RoleForm, TaskForm
from domain.report import Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class PlanDocument(PlanForm):
    """A plan file. Every mistake beyond the shape is told by `validate`."""

    agents: list[AgentForm] | None = None
    defaults: DefaultsForm | None = None  # type: ignore[assignment]  # narrower: what stands in it, too
    tasks: Annotated[list[TaskForm], Field(min_length=1)]


class AgentsDocument(RegistryForm):
    """agents.yaml."""

    roles: list[RoleForm] | None = None
    agents: Annotated[list[AgentForm], Field(min_length=1)]


class EventDocument(BaseModel):
    """One event of a run, as `events --json` prints it: CloudEvents 1.0. Later versions may say more."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    specversion: Literal["1.0"] = "1.0"
    id: Annotated[str, Field(description="RUN/NUMBER, without gaps from 1 on")]
    type: EventType
    source: str
    subject: Annotated[str, Field(description="RUN or RUN/TASK")]
    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    correlationid: Annotated[str, Field(description="the first of a run and its retries")]
    datacontenttype: Literal["application/json"] = "application/json"
    data: dict[str, Any]


def _with_types(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of events, with what the data of each type must be."""
    data = {str(type): described.json_schema for type, described in TYPES.items()}
    conditions = [
        {
            "if": {"properties": {"type": {"const": type}}},
            "then": {"properties": {"data": {"$ref": f"#/$defs/{type}"}}},
        }
        for type in data
    ]
    return {**schema, "allOf": conditions, "$defs": {**schema["$defs"], **data}}


SchemaName = Literal["plan", "agents", "report", "event"]
SCHEMAS: dict[str, tuple[type[BaseModel], JsonSchemaMode]] = {
    "plan": (PlanDocument, "validation"),
    "agents": (AgentsDocument, "validation"),
    "report": (Report, "serialization"),
    "event": (EventDocument, "serialization"),
}


class _AsWritten(GenerateJsonSchema):
    """Durations as people write them, and no null: a key without a value is a mistake."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """30s, 1m30s, 2h."""
        del schema
        return {"type": "string", "pattern": f"^{durations.PATTERN}$", "examples": ["30s", "1m30s", "2h"]}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """What stands under the key when it is there."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """The value itself: our defaults depend on the agent and are told by `validate --resolved`."""
        return self.generate_inner(schema["schema"])


def json_schema(name: str) -> dict[str, Any]:
    """The schema of one kind of document."""
    model, mode = SCHEMAS[name]
    made = model.model_json_schema(
        mode=mode, by_alias=True, schema_generator=_AsWritten if mode == "validation" else GenerateJsonSchema
    )
    made = _with_types(made) if model is EventDocument else made
    return {"$schema": DIALECT, "title": f"nightcrew {name}", **{k: v for k, v in made.items() if k != "title"}}
