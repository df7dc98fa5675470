"""The helm: what people may ask of a run that is going. The names are those of the commands.

Each is an update: it is refused before it is written down, or it is made exactly once and answered. Its description,
with an input to copy, is what the Temporal Web UI shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.amendments import Change
    from domain.requests import Make, Requests
    from domain.steering import Setting, Steered, Steering, TaskSteering


STEERING = 'Input: {"by": "your name", "note": "why"}'
SETTING = 'Input: {"max_concurrency": 8, "budget_usd": "5", "by": "your name"}'
CHANGE = "Input: the key `update` of what `starter.py change RUN FILE --dry-run --json` prints"
TASKS = 'Input: {"tasks": ["publish"], "note": "why", "by": "your name"}'

NO_WORD, NO_SETTING, NO_TASKS = Steering(), Setting(), TaskSteering()
"""What is asked without an input: a page has a button for it, and a person may leave the field empty."""


class Helm(ABC):
    """The updates of a run."""

    requests: Requests

    @abstractmethod
    def steer(self, make: Make) -> Steered:
        """Make a change."""

    @abstractmethod
    def check(self, make: Make) -> None:
        """Refuse a change that cannot be made."""

    @workflow.update(description=f"Start nothing new; calls at work finish. {STEERING}")
    def pause(self, asked: Steering = NO_WORD) -> Steered:
        """Start nothing new; calls at work finish."""
        return self.steer(lambda progress, now: self.requests.pause(progress, asked, now))

    @pause.validator
    def check_pause(self, asked: Steering = NO_WORD) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.pause(progress, asked, now))

    @workflow.update(description=f"Go on after a pause. {STEERING}")
    def resume(self, asked: Steering = NO_WORD) -> Steered:
        """Go on after a pause."""
        return self.steer(lambda progress, now: self.requests.resume(progress, asked, now))

    @resume.validator
    def check_resume(self, asked: Steering = NO_WORD) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.resume(progress, asked, now))

    @workflow.update(
        name="set",
        description=f"Change how many tasks may be at work at once, or what the run may spend. {SETTING}",
    )
    def set_values(self, asked: Setting = NO_SETTING) -> Steered:
        """Change how many tasks may be at work at once, or what the run may spend."""
        return self.steer(lambda progress, now: self.requests.set(progress, asked, now))

    @set_values.validator
    def check_set_values(self, asked: Setting = NO_SETTING) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.set(progress, asked, now))

    @workflow.update(description=f"Go on with another plan; what has started must be the same in it. {CHANGE}")
    def change(self, asked: Change) -> Steered:
        """Go on with another plan; what has started must be the same in it."""
        return self.steer(lambda progress, now: self.requests.change(progress, asked, now))

    @change.validator
    def check_change(self, asked: Change) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.change(progress, asked, now))

    @workflow.update(description=f"Let tasks start that wait for approval; the note goes to their agents. {TASKS}")
    def approve(self, asked: TaskSteering = NO_TASKS) -> Steered:
        """Let tasks start that wait for approval; the note goes to their agents."""
        return self.steer(lambda progress, now: self.requests.approve(progress, asked, now))

    @approve.validator
    def check_approve(self, asked: TaskSteering = NO_TASKS) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.approve(progress, asked, now))

    @workflow.update(description=f"Skip tasks that wait for approval, and what cannot do without them. {TASKS}")
    def reject(self, asked: TaskSteering = NO_TASKS) -> Steered:
        """Skip tasks that wait for approval, and what cannot do without them."""
        return self.steer(lambda progress, now: self.requests.reject(progress, asked, now))

    @reject.validator
    def check_reject(self, asked: TaskSteering = NO_TASKS) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.reject(progress, asked, now))

    @workflow.update(description=f"End tasks without doing them; one at work is stopped. {TASKS}")
    def skip(self, asked: TaskSteering = NO_TASKS) -> Steered:
        """End tasks without doing them; one at work is stopped."""
        return self.steer(lambda progress, now: self.requests.skip(progress, asked, now))

    @skip.validator
    def check_skip(self, asked: TaskSteering = NO_TASKS) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.skip(progress, asked, now))

    @workflow.update(
        description=f"Do again what did not succeed, these tasks or all, and what was skipped because of it. {TASKS}"
    )
    def retry(self, asked: TaskSteering = NO_TASKS) -> Steered:
        """Do again what did not succeed, these tasks or all, and what was skipped because of it."""
        return self.steer(lambda progress, now: self.requests.retry(progress, asked, now))

    @retry.validator
    def check_retry(self, asked: TaskSteering = NO_TASKS) -> None:
        """Refuse it where it cannot be done."""
        self.check(lambda progress, now: self.requests.retry(progress, asked, now))
