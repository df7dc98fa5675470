"""Waiting for tasks that an earlier run of the supervisor had started: what it means that Temporal finds none."""

from __future__ import annotations

from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.attach import AttachActivities
from activities.contract import AwaitRequest
from domain.models import Failed


class Absent:
    """A client that does not find the workflow of any task."""

    def __init__(self, why: str) -> None:
        self._why = why

    def get_workflow_handle(self, _id: str, **_: Any) -> Absent:
        return self

    async def result(self) -> Any:
        raise RPCError(self._why, RPCStatusCode.NOT_FOUND, b"")


async def test_a_task_whose_workflow_was_deleted_has_failed() -> None:
    attach = AttachActivities(cast("Client", Absent("workflow not found for ID: run/a")))

    reply = await ActivityEnvironment().run(attach.await_tasks, AwaitRequest(run="run", tasks=("a",)))

    (end,) = reply.ends
    assert isinstance(end.outcome, Failed)
    assert end.outcome.error.type == "Vanished"


async def test_a_namespace_that_is_missing_ends_no_task() -> None:
    """It says nothing of the task: Temporal has it asked for again."""
    attach = AttachActivities(cast("Client", Absent("Namespace default is not found.")))

    with pytest.raises(RPCError):
        await ActivityEnvironment().run(attach.await_tasks, AwaitRequest(run="run", tasks=("a",)))
