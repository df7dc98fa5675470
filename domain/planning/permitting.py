"""Whether those who are asked may do it: rights that a plan shows to be missing are mistakes in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from domain.models import Agent
from domain.permits import Needs, Permits
from domain.planning.drafts import Draft, Drafts, written_needs
from domain.planning.passing import Passing
from domain.planning.staffing import Choice
from domain.problems import Located, Place, Problems, quoted
from domain.refusals import Refusal, told
from domain.rights import Right

MENTIONED = 3
"""Agents of whom it is said why each of them may not do a task that nobody may do."""


@dataclass(frozen=True)
class Wanted:
    """What the tasks of a draft need beside their agent's model, and where each thing is asked for."""

    files: Mapping[str, Located] = field(default_factory=dict)
    results: Mapping[str, Located] = field(default_factory=dict)
    urls: Mapping[str, Located] = field(default_factory=dict)
    tools: Mapping[str, Located] = field(default_factory=dict)

    def of(self, agent: Agent, region: str | None) -> Needs:
        """What a call of this agent needs, made in this region."""
        return Needs(
            model=agent.model,
            files=tuple(self.files),
            results=tuple(self.results),
            urls=tuple(self.urls),
            tools=tuple(self.tools),
            region=region,
        )

    def place(self, refusal: Refusal, otherwise: Located) -> Located:
        """Where that is asked for which is refused."""
        scope, _, name = refusal.thing.partition(":")
        if refusal.right is Right.DATA:
            return {"files": self.files, "results": self.results, "urls": self.urls}[scope].get(name, otherwise)
        return self.tools.get(refusal.thing, otherwise) if refusal.right is Right.TOOLS else otherwise


class Permitting:
    """Chooses among agents those that may do a task, and knows whose results are whose."""

    def __init__(self, permits: Permits, drafts: Drafts, problems: Problems, region: str | None = None) -> None:
        """`region` is that of the run: an agent may have another."""
        self._permits, self._drafts, self._problems = permits, drafts, problems
        self._region = region
        self._makers: dict[str, Agent] = {}
        for inner in (draft.inner for draft in drafts.all if draft.inner is not None):
            agents = {agent.called: agent for agent in inner.plan.agents}
            self._makers |= {inner.id(task.id): agents[task.agent] for task in inner.plan.tasks}

    def choose(self, draft: Draft, choice: Choice, wanted: Wanted) -> Agent | None:
        """The first of those who could do it that may do it. Who comes before a draft must have been chosen before."""
        wanted = replace(wanted, results=self._results(draft))
        found: list[list[Refusal]] = []
        agent: Agent | None = None
        for one in choice.agents:  # most often the first will do, and a plan may have ten thousand tasks
            found.append(self._refusals(one, wanted))
            if not found[-1]:
                agent = one
                break
        if agent is not None:
            self._say_what_is_not_there_yet(draft, wanted)
        elif len(choice.agents) > 1:
            self._say_that_nobody_may(draft, choice, found)
        elif choice.agents:
            agent = choice.agents[0]  # so that what comes after it is looked at, too
            self._report(draft, found[0], wanted, choice.at)
        if agent is not None:
            self._makers.update(dict.fromkeys(draft.ids, agent))
        return agent

    def _say_what_is_not_there_yet(self, draft: Draft, wanted: Wanted) -> None:
        """Report what its agent has a right to, and nobody can give it."""
        for at in [*wanted.tools.values()][:1]:
            self._problems.add(at, "'tools' is not supported yet", task=draft.id)
        for at in [*wanted.urls.values()][:1]:
            message, hint = "'files': an address is not supported yet", "save it as a file beside the plan"
            self._problems.add(at, message, task=draft.id, hint=hint)

    def check_rest(self, passing: Passing, summarizer: Agent | None) -> None:
        """Report what can be looked at only when everybody was chosen: plans inside the plan, and summaries."""
        self._check_insides()
        self._check_summaries(passing, summarizer)

    def _check_insides(self) -> None:
        """Report what the first tasks of plans inside the plan may not read of what that plan is given."""
        for draft in self._drafts.all:
            if draft.inner is None or not draft.needs:
                continue
            wanted, plan = Wanted(results=self._results(draft)), draft.inner.plan
            first = {task.agent for task in plan.tasks if not task.needs}
            for agent in plan.agents:
                if agent.called in first:
                    data = [each for each in self._refusals(agent, wanted) if each.right is Right.DATA]
                    self._report(draft, data, wanted, draft.filled.at("needs"))

    def _check_summaries(self, passing: Passing, summarizer: Agent | None) -> None:
        """Report results that go down as summaries, and that whoever sums them up may not read, or not sum up."""
        if summarizer is None:
            return
        for draft in self._drafts.all:
            found = (self._makers.get(id) for id in draft.ids if id in passing.summarised)
            for maker in {agent.name: agent for agent in found if agent is not None}.values():
                results = () if maker.name == summarizer.name else (maker.name,)
                where = maker.region or self._region  # it is made where the result is
                needs = Needs(model=summarizer.model, results=results, region=where)
                if refused := self._permits.refusals(summarizer, needs):
                    message = f"its result is summed up for those that need it, and {told(refused)}"
                    hint = f"{refused[0].remedy or 'use another version of it'}, or say 'pass: full' where it is needed"
                    self._problems.add(draft.filled.at("id"), message, task=draft.id, hint=hint)

    def check_review(self, draft: Draft, maker: Agent, reviewer: Agent, at: Located) -> None:
        """Report a reviewer that may not read the answer, or may not be where it is: it is reviewed there."""
        where = maker.region or self._region
        results = () if maker.name == reviewer.name else (maker.name,)
        refused = self._permits.refusals(reviewer, Needs(model=reviewer.model, results=results, region=where))
        if refused:
            message = f"its answer is reviewed by {quoted(reviewer.called)}, and {told(refused)}"
            self._problems.add(at, message, task=draft.id, hint=refused[0].remedy)
        elif reviewer.region not in (None, where):
            message = f"its reviewer {quoted(reviewer.called)} is bound to the region {quoted(str(reviewer.region))}"
            self._problems.add(at, f"{message}, and it is not done there", task=draft.id, hint="choose another")

    def _refusals(self, agent: Agent, wanted: Wanted) -> list[Refusal]:
        return self._permits.refusals(agent, wanted.of(agent, agent.region or self._region))

    def _results(self, draft: Draft) -> dict[str, Located]:
        """The agents whose results a draft is given, and where it asks for them."""
        found: dict[str, Located] = {}
        for name, _, _, at in written_needs(draft):
            for id in self._drafts.lookup(name) or ():
                if (maker := self._makers.get(id)) is not None:
                    found.setdefault(maker.name, at)
        awaits = draft.awaits  # each item is a part of the answer that has the list
        if awaits is not None and (maker := self._makers.get(awaits.source)) is not None:
            found.setdefault(maker.name, draft.filled.at("for_each", "from"))
        return found

    def _report(self, draft: Draft, refused: Iterable[Refusal], wanted: Wanted, otherwise: Located) -> None:
        """One mistake for each place and right: a pattern may stand for hundreds of files."""
        places: dict[tuple[Place, Right | None], list[Refusal]] = {}
        for refusal in refused:
            at = wanted.place(refusal, otherwise)
            places.setdefault((Place(at.line, at.column), refusal.right), []).append(refusal)
        for (place, _), together in places.items():
            self._problems.add(place, told(together), task=draft.id, hint=together[0].remedy)

    def _say_that_nobody_may(self, draft: Draft, choice: Choice, found: Sequence[Sequence[Refusal]]) -> None:
        words = " and ".join(map(quoted, choice.asked))
        reasons = [told(refused) for refused in found]
        more = [f"and {len(reasons) - MENTIONED} more agents"] if len(reasons) > MENTIONED else []
        hint = "; ".join((*reasons[:MENTIONED], *more))
        message = f"of the {len(reasons)} agents that are capable of {words}, none has the rights for this task"
        self._problems.add(choice.at, message, task=draft.id, hint=hint)
