"""What people ask of a running plan: pause, resume, set, change, approve, reject, skip, retry.

Each is a step like any other. What cannot be done is refused whole, in a sentence, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from pydantic import JsonValue

from domain import amending, barriers, purse, settling
from domain.amending import Unfitting
from domain.amendments import Change
from domain.chart import Chart
from domain.events import EventType
from domain.graph import in_order
from domain.models import TaskStatus
from domain.prices import money
from domain.progress import Ended, Ordered, Progress, Waiting
from domain.steering import Setting, Steered, Steering, TaskSteering
from domain.step import Draft, Step

HEARD = 500
"""Changes that a run remembers by their ids."""

TASKS_HEARD = 20
"""Tasks of each that it remembers: this travels with every continue-as-new."""

NAMED = 5
"""Tasks that a sentence names; of more it tells how many there are."""


class Refused(Exception):
    """The run does not take this step now: why, in a sentence without its point."""


class Requests:
    """The steps that people may ask of one plan."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart

    def pause(self, progress: Progress, asked: Steering, now: datetime) -> Step:
        """Calls at work go on; nothing new starts."""
        draft = self._draft(progress, now)
        if draft.paused:
            raise Refused("the run is paused already")
        draft.paused = True
        draft.tell(EventType.RUN_PAUSED, **_who(asked))
        return draft.done(answer=Steered(done=f"paused; {_counted(len(draft.active))} at work may finish"))

    def resume(self, progress: Progress, asked: Steering, now: datetime) -> Step:
        """Go on; tasks that the pause met at the door are ready again."""
        draft = self._draft(progress, now)
        if not draft.paused:
            raise Refused("the run is not paused")
        draft.paused = False
        draft.tell(EventType.RUN_RESUMED, **_who(asked))
        for id, wait in progress.parked.items():
            if wait.why == "pause":
                del draft.parked[id]
                settling.make_ready(self._chart, draft, id)
        return draft.done(answer=Steered(done="resumed"))

    def set(self, progress: Progress, asked: Setting, now: datetime) -> Step:
        """Change how many tasks may be at work at once, or what the run may spend."""
        draft = self._draft(progress, now)
        if asked.max_concurrency is None and asked.budget_usd is None:
            raise Refused("nothing to set: give max_concurrency or budget_usd")
        done: list[str] = []
        changes: dict[str, JsonValue] = {}
        if asked.max_concurrency is not None:
            self._set_places(draft, asked.max_concurrency)
            changes["max_concurrency"] = asked.max_concurrency
            done.append(f"max_concurrency is {asked.max_concurrency}")
        if asked.budget_usd is not None:
            self._set_budget(draft, asked.budget_usd)
            changes["budget_usd"] = money(asked.budget_usd)
            done.append(f"the budget is ${money(asked.budget_usd)}")
        draft.tell(EventType.RUN_CHANGED, **changes, **_who(asked))
        return draft.done(answer=Steered(done=", ".join(done)))

    def change(self, progress: Progress, asked: Change, now: datetime) -> Step:
        """Go on with another plan, in which all that has started is the same."""
        draft = self._draft(progress, now)
        amendment = asked.amendment
        if amendment.plan_ref == self._chart.plan_ref:
            return draft.done(answer=Steered(done="the plan is like that already"))
        if amendment.base_ref != self._chart.plan_ref:
            raise Refused("the plan was changed meanwhile: look at it again, and say what you want of it now")
        try:
            _, change = amending.adopt(self._chart, draft, amendment, _who(asked))
        except Unfitting as unfitting:
            raise Refused(str(unfitting)) from None
        kinds = {"added": change.added, "edited": change.edited, "removed": change.removed}
        done = "; ".join(f"{verb} {_named(ids)}" for verb, ids in kinds.items() if ids)
        return draft.done(answer=Steered(done=done or "changed", tasks=(*change.added, *change.edited)))

    def approve(self, progress: Progress, asked: TaskSteering, now: datetime) -> Step:
        """Let tasks start that wait for it; the note goes to their agents."""
        draft = self._draft(progress, now)
        for id in self._waiting_for_approval(draft, asked):
            draft.tell(EventType.APPROVAL_GIVEN, id, **_who(asked))
            draft.approved[id] = None
            if asked.note is not None:
                draft.notes[id] = asked.note
            del draft.parked[id]
            settling.make_ready(self._chart, draft, id)
        return draft.done(answer=Steered(done=f"approved {_named(asked.tasks)}", tasks=asked.tasks))

    def reject(self, progress: Progress, asked: TaskSteering, now: datetime) -> Step:
        """Skip tasks that wait for approval, and what cannot do without them."""
        draft = self._draft(progress, now)
        for id in self._waiting_for_approval(draft, asked):
            draft.tell(EventType.APPROVAL_REFUSED, id, **_who(asked))
            del draft.parked[id]
            self._skip(draft, id, "rejected", asked)
        return draft.done(answer=Steered(done=f"rejected {_named(asked.tasks)}", tasks=asked.tasks))

    def skip(self, progress: Progress, asked: TaskSteering, now: datetime) -> Step:
        """End tasks without doing them; one at work is stopped first."""
        draft = self._draft(progress, now)
        for id in self._known(asked):
            if id in draft.ended:
                raise Refused(f"{id!r} has ended {draft.ended[id].status}")
            if id in draft.stopping:
                raise Refused(f"{id!r} is being stopped already")
        for id in asked.tasks:
            if id in draft.ended:
                continue  # skipped just now, because of another of these
            if id in draft.active:
                why = _reason("skipped", asked)
                draft.stopping[id] = Ordered(status=TaskStatus.SKIPPED, why=why, cause=id, by=asked.by, note=asked.note)
                draft.stops.append(id)
                continue
            settling.leave_line(self._chart, draft, id)
            draft.probes_no_more(id)
            self._skip(draft, id, "skipped", asked)
        if draft.stops:  # each is told of once more when it has ended
            self._tell_of_change(draft, asked, stops=[*draft.stops])
        return draft.done(answer=Steered(done=f"skipped {_named(asked.tasks)}", tasks=asked.tasks))

    def retry(self, progress: Progress, asked: TaskSteering, now: datetime) -> Step:
        """Do again what did not succeed, and what was skipped because of it; ask again at a wall, now."""
        draft = self._draft(progress, now)
        walls = self._walls_to_ask_at(draft, asked)
        if walls:
            self._tell_of_change(draft, asked, asks_at=[place or "the account" for place in walls])
        barriers.ask(self._chart, draft, walls)
        unpaid = self._unpaid_today(draft, asked)
        again = self._to_do_again(draft, asked)
        if not again and not walls and not unpaid:
            raise Refused("there is nothing to do again: no task has failed, and none waits at a wall")
        for id in unpaid:
            del draft.parked[id]
            settling.make_ready(self._chart, draft, id)
        for id in again:
            del draft.ended[id]
            draft.rounds[id] = draft.rounds.get(id, 0) + 1
            draft.tell(EventType.TASK_RETRIED, id, **_who(asked))
        concerned = self._concerned(draft, again)
        for id in concerned:
            if id not in again:
                draft.tell(EventType.TASK_RETRIED, id, **_who(asked))
            settling.leave_line(self._chart, draft, id)
            draft.probes_no_more(id)
            if not self._chart.era.before_0_6:
                draft.leave_batch(id)
        settling.reopen(self._chart, draft, concerned)
        done = f"does again {_named(tuple(again))}" if again else "asks the provider again"
        done = f"starts {_counted(len(unpaid))} that waited for another day" if unpaid and not again else done
        return draft.done(answer=Steered(done=done, tasks=tuple(again)))

    # How it is done

    def _draft(self, progress: Progress, now: datetime) -> Draft:
        if progress.cancelled or progress.late or progress.broke or len(progress.ended) == len(self._chart.tasks):
            raise Refused("the run is at its end")
        return Draft(progress, now)

    def _set_places(self, draft: Draft, places: int) -> None:
        if (draft.max_concurrency or self._chart.outline.max_concurrency) == places:
            raise Refused(f"max_concurrency is {places} already")
        draft.max_concurrency = places

    def _set_budget(self, draft: Draft, budget: Decimal) -> None:
        """What is spent or may be spent by calls at work cannot be taken back: a budget below that would be a lie."""
        if not self._chart.outline.counted:
            raise Refused("the money of a run that an earlier release began is not counted")
        if unpriced := sorted({*self._chart.outline.models.values()} - self._chart.outline.prices.keys()):
            raise Refused(f"there is no price for the model {unpriced[0]!r}, so its money cannot be counted")
        if purse.limit(self._chart, draft) == budget:
            raise Refused(f"the budget is ${money(budget)} already")
        if (gone := purse.committed(draft)) > budget:
            raise Refused(f"${money(gone)} is spent already, or may be by calls at work")
        draft.budget = budget
        draft.low = False

    def _known(self, asked: TaskSteering) -> tuple[str, ...]:
        if not asked.tasks:
            raise Refused("say which tasks")
        unknown = [id for id in asked.tasks if id not in self._chart.tasks]
        if unknown:
            raise Refused(f"the plan has no task {unknown[0][:200]!r}")
        if len(set(asked.tasks)) < len(asked.tasks):
            raise Refused("a task is named twice")
        return asked.tasks

    def _waiting_for_approval(self, draft: Draft, asked: TaskSteering) -> tuple[str, ...]:
        for id in self._known(asked):
            wait = draft.parked.get(id)
            if wait is None or wait.why != "approval":
                raise Refused(f"{id!r} does not wait for approval")
        return asked.tasks

    def _tell_of_change(self, draft: Draft, asked: Steering, **what: JsonValue) -> None:
        """Say who has asked for something that shows later, or in a step that nobody signs."""
        if not self._chart.era.before_0_4:
            draft.tell(EventType.RUN_CHANGED, **what, **_who(asked))

    def _skip(self, draft: Draft, id: str, verb: str, asked: TaskSteering) -> None:
        how = Ended(status=TaskStatus.SKIPPED, why=_reason(verb, asked), cause=id)
        settling.end(self._chart, draft, id, how, **_who(asked))

    def _walls_to_ask_at(self, draft: Draft, asked: TaskSteering) -> list[str]:
        """All walls, or those before the tasks that were named."""
        named = self._known(asked) if asked.tasks else ()
        waiting = [id for id in named if id in draft.parked and draft.parked[id].why == "wall"]
        places = {place for id in waiting for place in barriers.places_before(self._chart, id)}
        return [place for place in draft.barriers if not named or place in places]

    def _unpaid_today(self, draft: Draft, asked: TaskSteering) -> list[str]:
        """The tasks that wait for another day, of those named or of all: somebody may have raised its limit."""
        named = self._known(asked) if asked.tasks else draft.parked
        return [id for id in named if id in draft.parked and _waits_for_another_day(draft.parked[id])]

    def _to_do_again(self, draft: Draft, asked: TaskSteering) -> dict[str, None]:
        """The tasks that did not succeed, of those named or of all, and everything that was skipped because of them."""
        for id in asked.tasks:
            if id in draft.ended and draft.ended[id].status is TaskStatus.SUCCEEDED:
                raise Refused(f"{id!r} has succeeded: there is nothing to do again")
            if id not in draft.ended and not self._asks_again(draft, id):
                raise Refused(f"{id!r} has not ended yet")
        late = {id for at, id in self._chart.deadlines(draft.started) if at <= draft.now}
        chosen = [id for id in asked.tasks or draft.ended if id in draft.ended]
        roots = {draft.ended[id].cause or id for id in chosen if draft.ended[id].status is not TaskStatus.SUCCEEDED}
        if asked.tasks and (past := sorted(roots & late)):
            raise Refused(f"the deadline of {past[0]!r} has passed")
        again = roots - late
        again |= {id for id in draft.ended if self._was_caused_by(draft, id, again)}
        if not self._chart.era.before_0_4:
            for id in in_order({id: list(task.needs) for id, task in self._chart.tasks.items()}):
                if id in draft.ended and self._was_skipped_for(draft, id, again):
                    again.add(id)
        return dict.fromkeys(id for id in self._chart.tasks if id in draft.ended and id in again)

    def _was_caused_by(self, draft: Draft, id: str, roots: Collection[str]) -> bool:
        """Whether a task was skipped, and the first that led to it is one of these."""
        return draft.ended[id].status is TaskStatus.SKIPPED and draft.ended[id].cause in roots

    def _was_skipped_for(self, draft: Draft, id: str, again: Collection[str]) -> bool:
        """Whether one of these is an input that a skipped task lacked; of several a skip names but the first.

        Who was skipped by a person, or because nobody approved it, is the cause itself.
        """
        end, task = draft.ended[id], self._chart.tasks[id]
        if end.status is not TaskStatus.SKIPPED or end.cause == id:
            return False
        return any(
            need in again and (task.quorum is not None or not settling.accepts(policy, draft.ended[need].status))
            for need, policy in task.needs.items()
        )

    def _asks_again(self, draft: Draft, id: str) -> bool:
        """Whether a task waits at a wall at which this very request asks: it comes when the wall has fallen."""
        wait = draft.progress.parked.get(id)
        return wait is not None and (wait.why == "wall" or _waits_for_another_day(wait))

    def _concerned(self, draft: Draft, again: Iterable[str]) -> dict[str, None]:
        """Those that are done again, and those that could start but must now wait for them once more."""
        found = dict.fromkeys(again)
        for id in again:
            for dependant in self._chart.dependants.get(id, ()):
                if dependant not in draft.ended and dependant not in draft.active:
                    found[dependant] = None
        return found


def _waits_for_another_day(wait: Waiting) -> bool:
    """Whether the money of the day did not cover a task."""
    return wait.why == "budget" and wait.until is not None


Make = Callable[[Progress, datetime], Step]


def once(progress: Progress, id: str, make: Make, now: datetime) -> Step:
    """The step that was asked for under this id; nothing, and the same answer, when it was made before."""
    if id in progress.heard:
        return Step(progress, answer=progress.heard[id])
    step = make(progress, now)
    answer = step.answer or Steered(done="done")
    kept = answer.model_copy(update={"tasks": answer.tasks[:TASKS_HEARD]})
    heard = dict([*progress.heard.items(), (id, kept)][-HEARD:])
    return replace(step, progress=step.progress.model_copy(update={"heard": heard}), answer=answer)


def _who(asked: Steering) -> dict[str, JsonValue]:
    return {"by": asked.by, "note": asked.note}


def _reason(verb: str, asked: Steering) -> str:
    """Why a person ended a task: the note is the reason, where there is one."""
    return f"{verb} by {asked.by}" + (f": {asked.note}" if asked.note else "")


def _named(tasks: tuple[str, ...]) -> str:
    more = f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
    return ", ".join(tasks[:NAMED]) + more


def _counted(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
