"""Text becomes a valid Plan, or the list of everything that is wrong with it.

The way: document (is it YAML?), forms (are the keys and types right?), drafts (do ids and needs fit together?), then
per task its agent, prompt, files and payload. Each step works on all that the steps before could read, so that one
mistake hides no other. Only a text without any mistake is built into a plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from domain.document import CONTROL, Invalid, parse
from domain.forms import Filled, fill
from domain.grammar import DefaultsForm, PlanForm
from domain.models import Pace, Plan, Task
from domain.permits import Permits
from domain.planning.answering import Answering
from domain.planning.attachments import Attachments, Folder, FolderError
from domain.planning.building import Builder
from domain.planning.checking import Checker
from domain.planning.doubts import Doubts
from domain.planning.drafts import Drafts
from domain.planning.effective import Effective
from domain.planning.inside import Below, Insides
from domain.planning.levels import Levels
from domain.planning.lists import Lists, Ungiven
from domain.planning.passing import Passing
from domain.planning.permitting import Permitting
from domain.planning.replans import Replans
from domain.planning.staffing import Staffing
from domain.planning.whereabouts import Whereabouts
from domain.problems import TOP, Problem, Problems, did_you_mean, quoted
from domain.registry import Registry, read_agents, written_names
from domain.sharing import with_shares
from domain.summaries import SUMMARIZER
from domain.tree import Mapping, Node, Sequence

__all__ = ["Folder", "FolderError", "Invalid", "Planned", "Problem", "plan_from_text"]

BUILT_IN: AnyMapping[str, Any] = {"max_concurrency": 4, "mode": Pace.WINDOW}
MAX_PARAM = 100_000


@dataclass(frozen=True)
class Planned:
    """A valid plan, the contents to store before it starts, and where each effective value comes from."""

    plan: Plan
    contents: AnyMapping[str, bytes]
    sources: AnyMapping[str, AnyMapping[str, str]]
    warnings: tuple[Problem, ...]
    plan_sources: AnyMapping[str, str] = field(default_factory=dict)
    """Those of the values of the plan itself."""


def plan_from_text(
    text: str,
    *,
    file: str,
    registry: Registry,
    folder: Folder,
    params: AnyMapping[str, str] | None = None,
    max_concurrency: int | None = None,
    mode: Pace | None = None,
    budget: Decimal | None = None,
    region: str | None = None,
    usual: tuple[int, str] | None = None,
    now: datetime | None = None,
    inside: bool = False,
    permits: Permits | None = None,
) -> Planned:
    """The plan that the text describes, with every value in effect. `Invalid` carries every mistake there is.

    Concurrency, mode, budget and region go before those of the text. `usual` is the concurrency of plans that say
    nothing, and who says so. `now` is for warnings of deadlines that are times. A plan `inside` another one has none
    inside itself.
    `permits` says how strict the deployment is, and what was taken from whom; the registry knows it, if nobody says.
    """
    problems = Problems(file)
    source, root = parse(text, problems)
    filled = fill(PlanForm, root, problems, what="the plan") if root is not None else None
    if filled is None:
        raise Invalid(problems.in_order())
    if max_concurrency is not None and not 1 <= max_concurrency <= 500:
        problems.add(TOP, f"'max_concurrency' must be between 1 and 500, not {max_concurrency}")
    where = Whereabouts(filled, region, problems, inside=inside)
    values = _param_values(filled, params or {}, problems, "params: {{{}: VALUE}}" if inside else "--param {}=VALUE")
    staffing = _staffing(filled.value("agents"), registry, problems)
    attachments = Attachments(folder)
    drafts = Drafts(filled.value("tasks"), problems)
    if isinstance(written := filled.value("tasks"), Sequence | None) and not (written and written.items):
        problems.add(filled.at("tasks"), "the plan has no tasks")

    def read_inside(file: str, text: str, given: AnyMapping[str, str]) -> Planned:
        below = Below.of(folder, file)
        return plan_from_text(
            text,
            file=file,
            registry=registry,
            folder=below,
            params=given,
            region=where.region,
            usual=usual,
            now=now,
            inside=True,
            permits=permits,
        )

    insides = Insides(source, attachments, values, problems, None if inside else read_inside)
    for draft in drafts.all:
        insides.look_into(draft)
    lists = Lists(values, problems)
    drafts.lay_out(attachments, lists)
    drafts.connect()
    insides.check_needs()
    effective = Effective(_defaults(filled, problems), {"latency": filled.form.latency})
    permitting = Permitting(permits or Permits.of(registry.admission), drafts, problems, where.region)
    answering = Answering(effective, drafts, staffing, permitting, problems)
    checker = Checker(
        source=source,
        drafts=drafts,
        effective=effective,
        staffing=staffing,
        attachments=attachments,
        permitting=permitting,
        answering=answering,
        params=values,
        lists=lists,
        problems=problems,
        inside=inside,
    )
    checked = {draft.id: checker.check(draft) for draft in drafts.upstream_first() if not draft.is_plan}
    where.check(checked.values())
    passing = Passing(drafts)
    permitting.check_rest(passing, staffing.get(SUMMARIZER))
    replans = Replans(filled, drafts, staffing, problems, inside=inside)
    problems.raise_if_any()

    builder = Builder(effective, attachments, passing, answering, problems)
    built: list[tuple[Task, AnyMapping[str, str]]] = []
    for draft in drafts.all:
        built += builder.build(checked[draft.id]) if draft.inner is None else insides.build(draft, passing)
    if passing.summarised:
        staffing.use_if_there(SUMMARIZER)
    agents = insides.joined(replans.agents())
    asked = {"max_concurrency": max_concurrency, "mode": mode}
    values_of_plan, plan_sources = _plan_values(filled.form, asked, {"max_concurrency": usual})
    insides.check_mode(values_of_plan["mode"])
    where.check_summaries((task for task, _ in built), agents)
    problems.raise_if_any()
    levels = Levels([task for task, _ in built], drafts, problems, inside=inside)
    plan_sources |= {**({"budget_usd": "option"} if budget is not None else {}), **where.source}
    plan = Plan(
        name=filled.form.name or name_from(file),
        deadline=filled.form.deadline,
        budget=budget if budget is not None else filled.form.budget_usd,
        on_budget=filled.form.on_budget or "stop",
        agents=agents,
        tasks=replans.added_to(with_shares(levels.tasks)),
        parts=insides.parts(values_of_plan["max_concurrency"]),
        region=where.region,
        **values_of_plan,
    )
    doubts = Doubts(filled, checked.values(), effective, file)
    doubts.look(plan, staffing, values, insides.used | lists.used, now)
    sources = {task.id: sources for task, sources in built} | levels.sources
    return Planned(
        plan, {**insides.contents, **attachments.contents}, sources, (*doubts.told(), *insides.warnings), plan_sources
    )


def _staffing(written: Node | None, registry: Registry, problems: Problems) -> Staffing:
    """Who can be asked: those of the registry, and the plan's own agents."""
    own = read_agents(written, problems, registry.roles)
    staffing = Staffing(registry, own, written_names(written, "name") - {agent.name for agent, _ in own})
    staffing.check_own(problems)
    return staffing


def _plan_values(
    form: PlanForm, asked: AnyMapping[str, Any], usual: AnyMapping[str, tuple[Any, str] | None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the plan itself and their sources: asked for by whoever starts it, written, usual, built in."""
    values: dict[str, Any] = {}
    sources = {"name": "plan" if form.name is not None else "file"}
    sources |= {key: "plan" for key in ("deadline", "budget_usd", "on_budget") if getattr(form, key) is not None}
    for key, built_in in BUILT_IN.items():
        here = usual.get(key) or (built_in, "built in")
        given = ((asked[key], "option"), (getattr(form, key), "plan"), here)
        values[key], sources[key] = next(each for each in given if each[0] is not None)
    return values, sources


def name_from(file: str) -> str:
    """The name of a plan that gives itself none: the stem of its file, made safe."""
    stem = re.split(r"[/\\]", file)[-1].rpartition(".")
    safe = re.sub(r"[^\w-]+", "-", stem[0] or stem[2])[:100].strip("-_")
    return safe or "plan"


def _defaults(filled: Filled[PlanForm], problems: Problems) -> Filled[DefaultsForm] | None:
    """The defaults, or nothing when what is written there cannot be read at all."""
    if "defaults" in filled.wrong:
        return None
    return fill(DefaultsForm, filled.value("defaults") or Mapping({}, *TOP), problems, what="defaults")


def _param_values(
    filled: Filled[PlanForm], given: AnyMapping[str, str], problems: Problems, how: str
) -> dict[str, str]:
    """The value of every declared parameter: given, or its default. One that is wrong still counts as declared.

    `how` one is given, for those that are not.
    """
    node = filled.value("params")
    declared = node.entries if isinstance(node, Mapping) else {}
    forms = filled.form.params or {}
    values: dict[str, str] = dict.fromkeys(declared, Ungiven())
    for name, form in forms.items():
        value = given.get(name, form.default)
        if value is None:
            at = declared[name].key
            about = f": {form.about}" if form.about is not None else ""
            hint = f"{how.format(name)}{about}"
            problems.add(at, f"the parameter {quoted(name)} has no value and no default", hint=hint)
        elif form.default is None and not value.strip():
            problems.add(declared[name].key, f"the parameter {quoted(name)} is empty", hint=how.format(name))
        elif len(value) > MAX_PARAM or CONTROL.search(value):
            problems.add(declared[name].key, f"the value of {quoted(name)} is too long or holds control characters")
        else:
            values[name] = value
    for name in sorted(given.keys() - declared.keys() if "params" not in filled.wrong else ()):
        hint = did_you_mean(name, list(declared)) or f"declared: {', '.join(declared) or 'none'}"
        problems.add(filled.at("params"), f"the plan declares no parameter {quoted(name)}", hint=hint)
    return values
