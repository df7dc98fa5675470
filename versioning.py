"""The version that a worker takes work of, or none: what the server wants to hear, and what not."""

from __future__ import annotations

from dataclasses import replace

from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    WorkerDeploymentConfig,
    WorkflowInstance,
    WorkflowInstanceDetails,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from domain.regions import base_of


class WithoutVersioning(UnsandboxedWorkflowRunner):
    """Sets the versioning behaviour of a workflow aside.

    Every workflow of ours carries one, but the server refuses it from a worker that has no version to pin to. An
    embedded server is unversioned: on one machine an upgrade would strand pinned runs.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """The workflow as it is defined, but for its versioning behaviour."""
        return super().create_instance(replace(det, defn=replace(det.defn, versioning_behavior=None)))


def deployment_of(queue: str) -> str:
    """The deployment of all workers of a queue, in every region: an agent elsewhere is asked by the run's own version.

    Its name has no dot: Temporal parts deployment and build by one.
    """
    return base_of(queue)


def version_of(queue: str, build: str) -> WorkerDeploymentVersion:
    """One build of the workers of a queue, as Temporal names it."""
    return WorkerDeploymentVersion(deployment_name=deployment_of(queue), build_id=build)


def config_for(queue: str, build: str | None) -> WorkerDeploymentConfig | None:
    """What a worker is told of its version: it takes the runs that are pinned to it, and new ones if it is current."""
    if build is None:
        return None
    return WorkerDeploymentConfig(version=version_of(queue, build), use_worker_versioning=True)


def runner_for(build: str | None) -> SandboxedWorkflowRunner:
    """The sandbox of a worker of this build, or of one without a version."""
    return unversioned_runner() if build is None else SandboxedWorkflowRunner()


def unversioned_runner() -> SandboxedWorkflowRunner:
    """The sandbox, with the behaviour set aside inside of it: there the definition is read anew."""
    return SandboxedWorkflowRunner(runner_class=WithoutVersioning)
