"""How patient we are: timeouts, retries and heartbeats, each with its reason."""

from __future__ import annotations

from datetime import timedelta

from temporalio.common import Priority as QueuePriority
from temporalio.common import RetryPolicy
from temporalio.workflow import unsafe

with unsafe.imports_passed_through():
    from domain.models import Priority, ref_of

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""A worker beats once a second: ten missed beats are a dead worker, and a short cut of the network is not."""

DOOR_ALLOWANCE = timedelta(minutes=4)
"""What an attempt may spend in the door beside the call itself, whose own deadline the door keeps exactly: a minute's
wait for quota, and the same and a minute more for a summary."""

CALL_ALLOWANCE = timedelta(minutes=2)
"""The same for each further call of an attempt: a wait for quota, and a slow store."""


def attempt_timeout(timeout: timedelta, calls: int) -> timedelta:
    """How long an attempt may take that makes so many calls one after the other."""
    return timeout * calls + DOOR_ALLOWANCE + CALL_ALLOWANCE * (calls - 1)


CANCEL_ON_ITS_WAY = timedelta(seconds=5)
"""How long a task that the door stopped waits for its own cancel, so that it closes as cancelled."""

RECORD_TIMEOUT = timedelta(minutes=1)
"""Settling the account of a task: a few files."""

WRITE_TIMEOUT = timedelta(minutes=10)
"""Writing a batch of events: one file. The first of a run that an older release began takes the log so far into the
trail, segment by segment, from a bucket perhaps. It beats meanwhile."""

GROW_TIMEOUT = timedelta(minutes=10)
"""Making a plan of ten thousand tasks of another one, on a slow machine. It beats meanwhile."""

REPORT_TIMEOUT = timedelta(hours=1)
"""Making the report reads every event: of days in a distant bucket that may take a while. It beats meanwhile."""

ATTACH_TIMEOUT = timedelta(days=1)
"""Waiting for tasks in flight. It is started again when it ends: only the heartbeat must be short."""

CONTROL_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), maximum_attempts=0
)
"""The supervisor's own activities cost nothing and have no other way: they are tried until the store answers."""

WRITE_AFTER = timedelta(seconds=1)
"""The age of the oldest unwritten event at which a batch is written: readers are at most that far behind."""

MEMO_EVERY = timedelta(seconds=5)
"""The memo is a courtesy to lists of runs, and each change of it costs the server a write to its index."""

WRITE_AT_ONCE = 200
"""So many events are a batch without waiting."""

BATCH = 1000
"""Events in one request at most, so that a payload stays far below Temporal's limit."""


QUEUE_PRIORITY = {Priority.HIGH: 2, Priority.NORMAL: 3, Priority.LOW: 4}
"""Temporal's keys go from 1, the first, to 5; 3 is what has none."""


def queue_priority(run: str, priority: Priority) -> QueuePriority:
    """The place in a queue that is not empty: by priority, and among equals one run after the other.

    The key of a run is a hash of its id, because Temporal takes 64 bytes.
    """
    return QueuePriority(priority_key=QUEUE_PRIORITY[priority], fairness_key=ref_of(run.encode())[-32:])


LOSSES = 5
"""Workers that one start of a task may lose beyond its attempts, before any call. A task that takes down whoever
touches it ends after that."""


def agent_retry(attempts: int) -> RetryPolicy:
    """Retries of a paid call. The door counts the calls, and gives each failure its own delay with jitter.

    The intervals here are for lost workers, and for a store that does not answer.
    """
    return RetryPolicy(
        initial_interval=timedelta(seconds=1),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(minutes=1),
        maximum_attempts=attempts + LOSSES,
    )
