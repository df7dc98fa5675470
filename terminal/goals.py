"""A goal in place of a plan: `run --goal`, `submit --goal`, and `plan`, which writes the plan to read and edit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from domain.chart import Chart
from domain.consent import dollars
from domain.models import RunStatus
from domain.picture import Picture
from domain.planning import Invalid
from domain.planning.goals import MAX_GOAL, MAX_TASKS, REPAIRS, TASK, plan_for
from domain.planning.proposals import judged
from domain.progress import outline_of
from domain.purse import least_call
from prices import priced
from runtime import Mode
from terminal.goal_words import answer_of, document, goal_of, size_of, words_of_planner, written
from terminal.outcome import Exit, Refusal, exit_for, print_json
from terminal.plans import read_registry, refused
from terminal.playbooks import read_all
from terminal.roster import registry_at
from terminal.scripts import check_simulated, read_script_file
from terminal.session import Session, mode_now
from terminal.starting import Order, agree, announce, hand_over
from terminal.text import plain
from terminal.watching import Left, Watcher


@dataclass(frozen=True)
class Asked:
    """A goal, and what a person says about the run that it becomes."""

    goal: str
    agents: Path | None = None
    max_tasks: int | None = None
    max_concurrency: int | None = None
    budget: Decimal | None = None
    region: str | None = None
    id: str | None = None
    simulate: bool = False
    script: Path | None = None
    agreed: bool = False


def ordered(session: Session, goal: str, max_tasks: int | None, others: Mapping[str, Any]) -> Order:
    """The order of `run` and `submit` for a goal. What is about a plan that is there cannot stand beside it."""
    unfit = {"PLAN", "--playbook", "--param", "pace", "reuse", "only"}
    names = {"pace": "--mode", "reuse": "--reuse", "only": "--only"}
    if found := [names.get(key, key) for key in others if key in unfit and others[key]]:
        message = f"{found[0]} cannot stand beside --goal. Write what you want into the goal, or make the plan first."
        raise Refusal(f"{message} {session.starter} plan writes it.", code="usage", exit=Exit.WRONG)
    fields = {key: value for key, value in others.items() if key in {field.name for field in dataclass_fields(Asked)}}
    return order_for(session, Asked(goal=goal, agents=others["--agents"], max_tasks=max_tasks, **fields))


def order_for(session: Session, asked: Asked, *, grows: bool = True) -> Order:
    """The order to plan a goal and, where the plan grows, to run what was planned."""
    goal = sys.stdin.read(MAX_GOAL + 1) if asked.goal == "-" else asked.goal
    if not goal.strip() or len(goal) > MAX_GOAL:
        message = f"A goal is a text of at most {MAX_GOAL:,} characters, and not empty."
        raise Refusal(message, code="usage", exit=Exit.WRONG)
    mode = mode_now(simulate=asked.simulate)
    if asked.script is not None:
        check_simulated(mode)
    settings = session.settings
    registry = registry_at(settings, read_registry(asked.agents), live=mode is Mode.LIVE)
    usual = (settings.concurrency, f"tier {settings.tier}") if settings.concurrency is not None else None
    try:
        planned = plan_for(
            goal,
            registry=registry,
            playbooks=read_all(settings),
            max_tasks=asked.max_tasks or MAX_TASKS,
            simulated=mode is Mode.SIMULATED,
            budget=asked.budget,
            max_concurrency=asked.max_concurrency,
            region=asked.region,
            usual=usual,
            grows=grows,
        )
    except Invalid as invalid:
        raise refused(invalid) from None
    script = read_script_file(asked.script) if asked.script is not None else None
    order = Order(replace(planned, plan=priced(planned.plan)), mode, asked.id, script, agreed=asked.agreed)
    if grows and mode is Mode.LIVE and asked.budget is None and not asked.agreed:
        message = (
            "Nobody knows yet what this goal will cost: its plan is not there. Nothing was started. Give it a "
            "--budget, which it must keep to, or start it with --yes; or make the plan first: "
            f"{session.starter} plan."
        )
        raise Refusal(message, code="money", exit=Exit.MONEY)
    _check_budget(order)
    return order


def _check_budget(order: Order) -> None:
    """Refuse a budget that does not reach for the planner itself: nothing would come of it."""
    plan = order.planned.plan
    worst = least_call(Chart(outline_of(plan)), TASK)
    if plan.budget is not None and worst is not None and worst > plan.budget:
        message = (
            f"To make the plan alone may cost {dollars(worst)} at worst, with {REPAIRS} corrections, and the budget is "
            f"{dollars(plan.budget)}. Nothing was started. Set a higher --budget, or fewer --max-tasks."
        )
        raise Refusal(message, code="money", exit=Exit.MONEY)


async def write_plan(
    session: Session, asked: Asked, file: Path | None, *, force: bool, limit: timedelta | None, as_json: bool
) -> Exit:
    """Have a goal planned, and write the plan: nothing of it is done."""
    if file is not None and file.exists() and not force:
        raise Refusal(f"{file} is there already. --force writes over it.", code="exists", exit=Exit.WRONG)
    order = order_for(session, asked, grows=False)
    offer = await agree(session, order)
    announce(session, order)
    async with session.up(order.mode):
        client = await session.client()
        run = await hand_over(session, client, order, offer)
        simulated = order.mode is Mode.SIMULATED
        watcher = Watcher(client, run, lambda: session.trouble(simulated=simulated), starter=session.starter)
        left = await watcher.follow(limit)
        picture = watcher.picture or await client.picture(run)
        if left is not Left.ENDED:
            sys.stderr.write(f"The planner is at work on it: {session.starter} result {run} --wait\n")
            return Exit.NOT_FINISHED if left is Left.TIME else Exit.INTERRUPTED
        if picture.status is not RunStatus.COMPLETED:
            said = " ".join([_why_not(picture), *await words_of_planner(client, picture)])
            raise Refusal(said, code="not_planned", exit=exit_for(picture.status))
        found = judged(picture.plan, await answer_of(client, picture))
    text = written(found, goal_of(picture.plan))
    if as_json:
        print_json(document(found, run, text))
    elif file is None:
        sys.stdout.write(text)
    if file is not None:
        _save(file, text)
        sys.stderr.write(f"{size_of(found)}\nWritten to {file}. Run it with {session.starter} run {file}\n")
    return Exit.DONE


def _why_not(picture: Picture) -> str:
    error = picture.tasks[TASK].error
    why = f": {plain(error.message)}" if error is not None else ""
    return f"The planner made no plan of it ({picture.status}){why}. Say the goal in other words, or write a plan."


def _save(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror}.", code="unwritable", exit=Exit.CANNOT) from None
