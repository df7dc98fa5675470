"""Workflows on a worker without a deployment version: what the server wants to hear, and what not."""

from __future__ import annotations

from dataclasses import replace

from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner


class WithoutVersioning(UnsandboxedWorkflowRunner):
    """Sets the versioning behaviour of a workflow aside.

    Every workflow of ours carries one, but the server refuses it from a worker that has no version to pin to. An
    embedded server is unversioned: on one machine an upgrade would strand pinned runs.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """The workflow as it is defined, but for its versioning behaviour."""
        return super().create_instance(replace(det, defn=replace(det.defn, versioning_behavior=None)))


def unversioned_runner() -> SandboxedWorkflowRunner:
    """The sandbox, with the behaviour set aside inside of it: there the definition is read anew."""
    return SandboxedWorkflowRunner(runner_class=WithoutVersioning)
