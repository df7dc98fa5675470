"""A fan-out over a list that a task has made: the task that stood for it becomes one task per item.

An item is the text of another agent. It stands in prompts as data, and in ids only where the plan asks for it, and the
item is short and plain.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count

from pydantic import JsonValue

from domain.item_places import ITEM_KEY
from domain.json_schema import NotJsonError, value_of
from domain.merging import GROUP, with_levels, without_levels
from domain.models import Approval, Need, Placement, Plan, Task
from domain.notation import MAX_QUESTION, item_label, same
from domain.problems import Mistake
from domain.sharing import with_shares

LABEL_MOST = 60
"""Characters of an item that is its own label; any other goes by its number."""

ITEM_MOST = 10_000
"""Characters of one item: it is to be named, not to be passed on whole."""


class NotGrown(Exception):
    """The plan cannot grow by an answer: why, in a sentence without its point."""


def expanded(plan: Plan, source: str, text: str, over: Collection[str] = ()) -> tuple[Plan, dict[str, str]]:
    """The plan with a task per item of this answer, and the fan-outs that have none, with the reason.

    `NotGrown` says what is wrong with the list.
    """
    fans = [task for task in plan.tasks if task.each is not None and task.each.source == source and task.id not in over]
    if not fans:
        return plan, {}
    items = listed(text)
    if not items:
        laid_out = with_levels(plan.tasks, {*over, *(fan.id for fan in fans)})
        idle = {fan.id: f"the list of {source!r} is empty" for fan in fans}
        return plan.model_copy(update={"tasks": laid_out}), idle
    for fan in fans:
        most = fan.each.most if fan.each is not None else 0
        if len(items) > most:
            hint = "ask for fewer, or give 'for_each' a higher 'max'"
            raise NotGrown(f"its list has {len(items):,} items, and {fan.id!r} takes at most {most:,}: {hint}")
    taken = {task.id for task in plan.tasks}
    sprouts = {fan.id: tuple(_sprouts(fan, items, taken)) for fan in fans}
    tasks = [each for task in plan.tasks for each in sprouts.get(task.id, (task,))]
    ids = {id: tuple(task.id for task in new) for id, new in sprouts.items()}
    tasks = [*with_levels([_rewired(task, ids) for task in tasks], over)]
    shared = {task.id: task for task in with_shares(tasks) if task.fan in sprouts}
    update = {
        "tasks": tuple(shared.get(task.id, task) for task in tasks),
        "templates": (*plan.templates, *fans),
    }
    return plan.model_copy(update=update), {}


def listed(text: str) -> list[str]:
    """The items of an answer: `{"items": [...]}`, or one list under any other name, or a list alone."""
    try:
        answer = value_of(_unfenced(text))
    except NotJsonError:
        raise NotGrown('its answer is no JSON: a list such as {"items": ["one", "two"]} is needed') from None
    if isinstance(answer, dict):
        lists = [value for value in answer.values() if isinstance(value, list)]
        answer = answer["items"] if "items" in answer else lists[0] if len(lists) == 1 else None
    if not isinstance(answer, list):
        raise NotGrown('its answer has no list of items: one such as {"items": ["one", "two"]} is needed')
    return [_item(number, value) for number, value in enumerate(answer, start=1)]


def source_of_item(plan: Plan, task: Task) -> str | None:
    """The task in whose list the item of this one stands; None when it has none.

    Whoever is given an item reads of that result. What is merged first for a task has the item of that task.
    """
    if task.item is None:
        return None
    fan = task.fan
    if fan is None:
        whole = task.id.rpartition(GROUP)[0]
        fan = next((each.fan for each in plan.tasks if each.id == whole), None)
    return next((each.each.source for each in plan.templates if each.each is not None and each.id == fan), None)


def asked_openly(plan: Plan) -> dict[str, Approval | None]:
    """What is asked about tasks of a list without the words of its items: events and trails have it like this.

    The plan has the question whole, for who is asked.
    """
    asked = {fan.id: fan.approval for fan in plan.templates}
    return {
        task.id: asked[task.fan]
        for task in plan.tasks
        if task.item is not None and task.approval is not None and task.fan in asked
    }


def withdrawn(plan: Plan, sources: Collection[str]) -> Plan:
    """The plan as it was before it grew by the lists of these tasks: they are to be made anew."""
    fans = {task.id: task for task in plan.templates if task.each is not None and task.each.source in sources}
    if not fans:
        return plan
    tasks: dict[str, Task] = {}
    owners = {task.id: task.fan for task in plan.tasks if task.fan in fans}
    for task in without_levels(plan.tasks):
        if task.fan in fans:
            tasks.setdefault(task.fan or "", fans[task.fan or ""])
        else:
            tasks[task.id] = _gathered(task, owners)
    rest = tuple(task for task in plan.templates if task.id not in fans)
    return plan.model_copy(update={"tasks": with_levels([*tasks.values()]), "templates": rest})


def _item(number: int, value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not text.strip():
        raise NotGrown(f"item {number} of its list is empty")
    if len(text) > ITEM_MOST:
        raise NotGrown(f"item {number} of its list has {len(text):,} characters; at most {ITEM_MOST:,} are possible")
    return text


def _unfenced(text: str) -> str:
    """The text without the fence that some models put around JSON."""
    lines = text.strip().splitlines()
    return "\n".join(lines[1:-1]) if len(lines) > 2 and lines[0].startswith("```") and lines[-1] == "```" else text


def _sprouts(fan: Task, items: Iterable[str], taken: set[str]) -> Iterator[Task]:
    """The tasks that a fan-out stands for."""
    seen = {same(id) for id in taken}
    numbered = fan.each is not None and fan.each.numbered
    for number, item in enumerate(items, start=1):
        id = _id(fan.id, str(number) if numbered else _label(number, item), seen)
        approval = fan.approval
        if approval is not None and fan.each is not None and fan.each.ask:
            approval = approval.model_copy(update={"ask": item.join(fan.each.ask)[:MAX_QUESTION]})
        filled = {key: _filled(value, item) for key, value in fan.payload.items()}
        update = {"id": id, "item": item, "payload": filled, "approval": approval, "each": None, "fan": fan.id}
        yield fan.model_copy(update=update)


def _label(number: int, item: str) -> str:
    """What a task goes by: its item where that can stand in an id, else its number."""
    try:
        return item_label(item) if len(item) <= LABEL_MOST else str(number)
    except Mistake:
        return str(number)


def _id(fan: str, label: str, seen: set[str]) -> str:
    """The id of one task. One that is there already counts on."""
    for again in count(1):
        id = f"{fan}[{label}]" if again == 1 else f"{fan}[{label} #{again}]"
        if same(id) not in seen:
            break
    seen.add(same(id))
    return id


def _filled(value: JsonValue, item: str) -> JsonValue:
    """A payload with the item in its texts. What is filled in is never read again."""
    if isinstance(value, list):
        return [_filled(child, item) for child in value]
    if isinstance(value, dict):
        if isinstance(pieces := value.get(ITEM_KEY), list):
            return item.join(map(str, pieces))
        return {key: _filled(child, item) for key, child in value.items()}
    return value


def _rewired(task: Task, fans: dict[str, tuple[str, ...]]) -> Task:
    """A task that needs each task of a fan-out where it needed the one that stood for them."""
    if not any(need.task in fans for need in task.needs):
        return task
    needs = [need.model_copy(update={"task": id}) for need in task.needs for id in fans.get(need.task, (need.task,))]
    prompt = [
        piece
        if isinstance(piece, str)
        else Placement(name=piece.name, tasks=tuple(id for of in piece.tasks for id in fans.get(of, (of,))))
        for piece in task.prompt
    ]
    return task.model_copy(update={"needs": tuple(needs), "prompt": tuple(prompt)})


def _gathered(task: Task, owners: Mapping[str, str | None]) -> Task:
    """The same the other way round."""
    if not any(need.task in owners for need in task.needs):
        return task
    needs: dict[str, Need] = {}
    for need in task.needs:
        id = owners.get(need.task) or need.task
        needs.setdefault(id, need.model_copy(update={"task": id}))
    prompt = [
        piece
        if isinstance(piece, str)
        else Placement(name=piece.name, tasks=tuple(dict.fromkeys(owners.get(of) or of for of in piece.tasks)))
        for piece in task.prompt
    ]
    return task.model_copy(update={"needs": tuple(needs.values()), "prompt": tuple(prompt)})
