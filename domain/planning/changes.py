"""A proposed change of a plan that runs: judged by the rules of a plan file, and put in place of what is there.

What is proposed becomes a plan text, with stand-ins for the tasks that stay, and is read like any other: the same
mistakes are found by the same code. Of what comes out only the proposed tasks are taken. A proposal can name neither
files, tools, limits, money nor approvals, and an edit keeps all of that as it was: its schema has no word for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import ConfigDict, ValidationError

from domain.graph import cycles
from domain.json_schema import NotJsonError, value_of
from domain.merging import GROUP, with_levels, without_levels
from domain.models import Form, Need, Placement, Plan, Policy, Task, Value
from domain.notation import item_label
from domain.planning import FolderError, Invalid, plan_from_text
from domain.problems import Mistake, quoted
from domain.registry import Registry
from domain.replanning import REPLAN, assignment, is_replan, with_round

NO_FILES = "a proposed change has no files"
FILE = "the change"


class Refused(Exception):
    """The change cannot be made: every reason, in sentences for whoever proposed it."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


class _Form(Value):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Needed(_Form):
    task: str
    policy: str


class _Edit(_Form):
    id: str
    prompt: str
    needs: list[_Needed]


class _Addition(_Edit):
    agent: str


class Proposal(_Form):
    """What an agent proposes."""

    why: str
    add: list[_Addition]
    edit: list[_Edit]
    remove: list[str]


class _NoFolder:
    """There is nothing to read for a proposal."""

    def read(self, path: str) -> bytes:  # noqa: ARG002
        raise FolderError(NO_FILES)

    def match(self, pattern: str) -> list[str]:  # noqa: ARG002
        raise FolderError(NO_FILES)


def changed(plan: Plan, replan: Task, text: str) -> Plan:
    """The plan with what this answer of `replan` proposes. `Refused` has every reason why it cannot be.

    Whether something of it has started since is not known here: the run itself refuses that.
    """
    proposal = _read(text)
    most = replan.grows.max_tasks if replan.grows is not None and replan.grows.max_tasks is not None else 0
    reasons = [*_unfit(plan, replan, proposal)]
    if len(proposal.add) > most:
        reasons.append(f"it adds {len(proposal.add):,} tasks, and may add {most:,}")
    if reasons:
        raise Refused(reasons)
    if not (proposal.add or proposal.edit or proposal.remove):
        return plan
    in_place = _in_place(plan, proposal, _drafted(plan, proposal))
    _check_needs(in_place)  # the rounds and levels that follow are laid out by them
    tasks = _with_next_round(in_place, replan, [each.id for each in proposal.add])
    new = plan.model_copy(update={"tasks": _kept(plan, with_levels(tasks))})
    _check(new)
    return new


def judged(plan: Plan, task: Task, text: str) -> str | None:
    """What is wrong with a proposal, for its agent; nothing when it can be made."""
    try:
        changed(plan, task, text)
    except Refused as refused:
        return "\n".join(["The change cannot be made:", *(f"- {reason}" for reason in refused.reasons)])
    return None


def _read(text: str) -> Proposal:
    try:
        return Proposal.model_validate(value_of(text))
    except NotJsonError as error:
        raise Refused([f"it is not one JSON document: {error}"]) from None
    except ValidationError as error:
        raise Refused(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False)[:5]
        ) from None


def _unfit(plan: Plan, replan: Task, proposal: Proposal) -> Iterator[str]:
    """What is about tasks that cannot be touched."""
    tasks = {task.id: task for task in plan.tasks}
    ended = [need.task for need in replan.told_of]
    for id in ended:
        ended += [need.task for need in tasks[id].needs if need.task not in ended] if id in tasks else []
    touched = [each.id for each in proposal.edit] + proposal.remove
    for id in touched:
        if id not in tasks:
            yield f"{quoted(id)} is no task of the plan, so it can be neither edited nor removed"
        elif id in ended:
            yield f"{quoted(id)} has ended: it cannot be changed"
        elif is_replan(tasks[id]) or GROUP in id or tasks[id].grows is not None or tasks[id].each is not None:
            yield f"{quoted(id)} is no task that a change can be about"
    for id in sorted({id for id in touched if touched.count(id) > 1}):
        yield f"{quoted(id)} is in the change more than once"
    for each in proposal.add:
        if each.id in tasks or REPLAN.fullmatch(each.id):
            yield f"{quoted(each.id)} is in the plan already: a new task has an id of its own"


def _drafted(plan: Plan, proposal: Proposal) -> dict[str, Task]:
    """The proposed tasks, as a plan file with them would have them."""
    tasks = {task.id: task for task in plan.tasks}
    gone = {*proposal.remove, *(each.id for each in proposal.edit)}
    written = [*_stand_ins(task for task in plan.tasks if task.id not in gone)]
    for each in (*proposal.edit, *proposal.add):
        agent = each.agent if isinstance(each, _Addition) else tasks[each.id].agent
        needs = {need.task: need.policy for need in each.needs}
        prompt = each.prompt.strip() or ("" if isinstance(each, _Addition) else "as it was")
        written.append({"id": each.id, "agent": agent, "prompt": prompt, "needs": needs})
    try:
        text = json.dumps({"tasks": written}, ensure_ascii=False)
        planned = plan_from_text(
            text, file=FILE, registry=Registry.of_run(plan.agents), folder=_NoFolder(), region=plan.region
        )
    except Invalid as invalid:
        raise Refused(_sentence(problem.task, problem.message, problem.hint) for problem in invalid.problems) from None
    proposed = {each.id for each in (*proposal.edit, *proposal.add)}
    return {task.id: _as_passed(task, tasks) for task in planned.plan.tasks if task.id in proposed}


def _sentence(task: str | None, message: str, hint: str | None) -> str:
    """A problem without its place, which is none that the agent could know."""
    return (f"task {quoted(task)}: " if task else "") + message + (f" ({hint})" if hint else "")


def _stand_ins(tasks: Iterable[Task]) -> Iterator[dict[str, Any]]:
    """Tasks that stay, under the names by which others can need them: a fan-out by its own."""
    fans: dict[str, dict[str, Any]] = {}
    for task in tasks:
        base, bracket, item = task.id.partition("[")
        stand_in: dict[str, Any] = {"id": base, "agent": task.agent, "prompt": "x"}
        if "/" in task.id:
            continue
        if not bracket:
            yield stand_in
        elif _is_item(item.removesuffix("]")):
            fans.setdefault(base, {**stand_in, "prompt": "{{ item }}", "for_each": []})["for_each"].append(
                item.removesuffix("]")
            )
    yield from fans.values()


def _is_item(text: str) -> bool:
    try:
        item_label(text)
    except Mistake:
        return False
    return True


def _as_passed(task: Task, tasks: dict[str, Task]) -> Task:
    """What is there already has a summary or has none, however many need it now."""
    needs = (
        need.model_copy(update={"form": Form.SUMMARY if tasks[need.task].summarise else Form.FULL})
        if need.task in tasks
        else need
        for need in task.needs
    )
    return task.model_copy(update={"needs": tuple(needs), "shares": None})


def _in_place(plan: Plan, proposal: Proposal, drafted: dict[str, Task]) -> list[Task]:
    """The tasks of the plan without what is removed, with what is edited in its place and what is new at the end."""
    prompts = {each.id: drafted[each.id].prompt for each in proposal.edit if each.prompt.strip()}
    edited = {each.id for each in proposal.edit}
    found: list[Task] = []
    for task in without_levels(plan.tasks):
        if task.id in edited:
            waits = (need for need in task.needs if need.form is Form.ORDER)
            needs = (*drafted[task.id].needs, *waits)
            prompt = prompts.get(task.id, task.prompt)
            found.append(task.model_copy(update={"prompt": prompt, "needs": needs, "shares": None}))
        elif task.id not in proposal.remove:
            found.append(task)
    return [*found, *(drafted[each.id] for each in proposal.add)]


def _with_next_round(tasks: list[Task], replan: Task, added: list[str]) -> tuple[Task, ...]:
    """The next round, where there is one, is about what this one has added."""
    grows, number = replan.grows, REPLAN.fullmatch(replan.id)
    if grows is None or not grows.rounds or not added or number is None or grows.max_tasks is None:
        return tuple(tasks)
    most = grows.max_tasks - len(added)
    if not most:
        return tuple(tasks)
    update = {
        "id": f"replan-{int(number[1]) + 1}",
        "prompt": (assignment(most),),
        "grows": grows.model_copy(update={"rounds": grows.rounds - 1, "max_tasks": most}),
        "shares": None,
    }
    return with_round(tasks, replan.model_copy(update=update), added)


def _kept(plan: Plan, tasks: Iterable[Task]) -> tuple[Task, ...]:
    """What says the same as before is the same: what goes first in briefs was decided with all siblings in sight."""
    before = {task.id: task for task in plan.tasks}

    def said(task: Task | None) -> Task | None:
        return task.model_copy(update={"shares": None}) if task is not None else None

    return tuple(before[task.id] if said(before.get(task.id)) == said(task) else task for task in tasks)


def _check_needs(tasks: Sequence[Task]) -> None:
    """Needs that are gone, and a circle. Who needs a replan waits for it, and it comes back with its round."""
    ids = {task.id for task in tasks}
    reasons = [
        f"{quoted(task.id)} needs {quoted(need.task)}, which the change removes"
        for task in tasks
        for need in task.needs
        if need.task not in ids
    ]
    if reasons:
        raise Refused(reasons)
    needs = {task.id: [need.task for need in task.needs] for task in tasks}
    if found := [f"the needs form a cycle: {' -> '.join([*cycle[:20], cycle[0]])}" for cycle in cycles(needs)]:
        raise Refused(found)


def _check(plan: Plan) -> None:
    """What only the whole shows: a quorum that cannot be, and what is placed and not needed."""
    _check_needs(plan.tasks)
    reasons: list[str] = []
    for task in plan.tasks:
        optional = sum(need.policy is Policy.OPTIONAL for need in _sources(task))
        if task.quorum is not None and task.quorum > optional:
            reasons.append(f"{quoted(task.id)} asks for {task.quorum} of its optional needs, and would have {optional}")
        needed = {need.task for need in task.needs}
        placed = [name for piece in task.prompt if isinstance(piece, Placement) for name in piece.tasks]
        if task.merge and placed:
            reasons.append(f"{quoted(task.id)} merges, so no result can be placed in its prompt")
        if not needed.issuperset(placed):
            reasons.append(f"{quoted(task.id)} places a result in its prompt that it would not need any more")
    if reasons:
        raise Refused(reasons)


def _sources(task: Task) -> tuple[Need, ...]:
    """The needs that a quorum counts."""
    return tuple(need for need in task.told_of if need.form is Form.NAME) if task.merged else task.told_of
