"""What the page of a run or a task in the Temporal Web UI says from the start: what it is, and how to steer it."""

from __future__ import annotations

import json
from collections import Counter

from domain.durations import written
from domain.graph import layers
from domain.markdown import MESSAGE_WIDTH, NAME_WIDTH, Section, code, is_harmless, label, listed, page, plural, summary
from domain.models import Approval, Plan
from domain.progress import OutlineTask

NEEDS_SHOWN = 8
LAYERS_SHOWN = 30
GROUPS_SHOWN = 6


def run_summary(plan: Plan, *, simulated: bool) -> str:
    """The run in a line."""
    size = "its plan is made by its first task" if _is_goal(plan) else plural(len(plan.tasks), "task")
    return summary(f"{mode_of(simulated=simulated)}: {label(plan.name)}, {size}")


def run_details(run: str, plan: Plan, *, simulated: bool) -> str:
    """The plan in short, and what a person who sees only this page can do."""
    most = f"at most {plan.max_concurrency} at work at once"
    about = f"The plan {code(plan.name)}: {plural(len(plan.tasks), 'task')}, {most}."
    if _is_goal(plan):
        made = f"its plan is made by its first task, {code(plan.tasks[0].id)}"
        about = f"A goal: {made}, with {most}. *Current Details* has the tasks that there are."
    paid = "a stand-in answers, nothing is paid" if simulated else "a real provider is asked and paid"
    head = [
        about,
        f"{mode_of(simulated=simulated)}: {paid}.",
    ]
    foot = [
        "**In a terminal**",
        f"- `./starter.py watch {run}` shows it live, `status` once, `result` the report.",
        f"- `./starter.py pause {run}`, `resume`, `cancel`, `set` steer it.",
        f"- `./starter.py approve {run} TASK`, `reject`, `skip`, `retry` steer its tasks.",
        "",
        "**On this page**",
        "- *Current Details* is the run as it was when you opened the page. Press R to look again.",
        "- *Request Cancellation* is `cancel`: calls are cut, what has ended is kept, a report is written.",
        "- *Terminate* ends it without a report. *Reset* repeats it with the answers it has, and mends nothing.",
        "- Each task is a workflow of its own, listed under *Relationships*.",
        "",
        *_updates(run, plan),
    ]
    found = layers(plan) if not _is_goal(plan) else []
    lines = [f"{number}: {_groups(ids)}" for number, ids in enumerate(found[:LAYERS_SHOWN], 1)]
    return page(head, [Section("Layers: each needs what is before it", lines, len(found))], foot)


def _is_goal(plan: Plan) -> bool:
    """Whether there is no plan yet but that of the planner: a retry of a goal has all of its tasks from the start."""
    return plan.goal is not None and len(plan.tasks) == 1


def _updates(run: str, plan: Plan) -> list[str]:
    """The steering verbs as updates, with inputs to copy."""
    asked = next((task.id for task in plan.tasks if task.approval is not None), plan.tasks[0].id if plan.tasks else "")
    money = json.dumps({"budget_usd": "5", "by": "your name"})
    command = f'temporal workflow update execute --workflow-id {run} --name pause --input \'{{"by": "me"}}\''
    return [
        "**Steering on this page: *Send an Update***",
        f"- `pause`, `resume`: {code(json.dumps({'by': 'your name', 'note': 'why'}))}",
        f"- `set`: {code(json.dumps({'max_concurrency': 8, 'by': 'your name'}))}, or {code(money)}",
        f"- `approve`, `reject`, `skip`, `retry`: {update_input(asked)}",
        f"- The same by Temporal's own command: {code(command, 400)}",
    ]


def update_input(task: str) -> str:
    """The input of an update that is about this task, to be copied; a name that would not survive that is left out."""
    name = task if is_harmless(task) and len(task) <= NAME_WIDTH else "TASK"
    return code(json.dumps({"tasks": [name], "note": "why", "by": "your name"}, ensure_ascii=False), 200)


def task_summary(agent: str, task: str) -> str:
    """Who does what, in a line."""
    return summary(f"{label(agent, 60)} does {label(task)}")


def task_details(run: str, task: OutlineTask, *, simulated: bool) -> str:
    """What the task is, and where the rest of it is."""
    # Whoever copies a command must get what it says: an id that a shell or a page would change is not put into one.
    name = f"'{task.id}'" if is_harmless(task.id) and len(task.id) <= NAME_WIDTH else "TASK"
    limits = [f"All of it may take {written(task.time_limit)}."] if task.time_limit is not None else []
    asks = [_approval(task.approval)] if task.approval is not None else []
    lines = [
        f"Task {code(task.id)} of the run {code(run, 200)}, {mode_of(simulated=simulated)}.",
        f"Needs {listed(list(task.needs), NEEDS_SHOWN)}." if task.needs else "Needs no other task.",
        f"{code(task.agent)} has {plural(task.attempts, 'attempt')} of at most {task.timeout.total_seconds():g} s.",
        *limits,
        *asks,
        f"`./starter.py status {run} {name}` shows what it is told, and what came of it.",
    ]
    return "\n".join(lines)


def _approval(approval: Approval) -> str:
    ask = f": {code(approval.ask, MESSAGE_WIDTH)}" if approval.ask else ""
    expires = f"; without an answer for {written(approval.expires)}: {approval.on_expiry}" if approval.expires else ""
    return f"A person must approve its start{ask}{expires}."


def mode_of(*, simulated: bool) -> str:
    """The word that every screen shows."""
    return "SIMULATED" if simulated else "LIVE"


def _groups(ids: list[str]) -> str:
    """Tasks of one layer; those of one `for_each` are told together."""
    groups = Counter(id.partition("[")[0] for id in ids)
    first = {id.partition("[")[0]: id for id in reversed(ids)}
    names = [code(first[name]) if count == 1 else f"{code(name)} ({count:,})" for name, count in groups.items()]
    more = f" and {len(names) - GROUPS_SHOWN:,} more" if len(names) > GROUPS_SHOWN else ""
    return ", ".join(names[:GROUPS_SHOWN]) + more
