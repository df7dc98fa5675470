"""The scene of the trap: 22 tasks and a synthesis, and a provider that has a quota and becomes slow when it is full.

Every arm asks for the very same briefs, so the provider, whose chance depends on seed and prompt alone, gives every arm
the same answers at the same pace. What differs is when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from domain.briefing import Brief, brief_for
from domain.models import Input, Plan, Task, TaskStatus, ref_of
from domain.planning import Planned, plan_from_text
from domain.registry import registry_from_text
from folder import PlanFolder
from runtime import ROOT
from simulator.answers import answer_to, chance, pace_of
from simulator.config import Config, Limits
from simulator.prompt import read_prompt
from simulator.script import Then

TIMEOUT = timedelta(seconds=12)
"""Of one request. The article has calls of 7 s (45 s in six waves) and timeouts of 30 s; ours are 2.5 times as fast."""

PLAN = """
name: trap
defaults: {agent: researcher, timeout: 12s, max_tokens: 200}
tasks:
  - id: extract
    for_each: {files: "notes/*.md"}
    prompt: >
      The attached file is the note of one interview about repair bookings. Extract who was asked, how they work today,
      what goes wrong and what that costs them, and what they would pay for.
  - id: findings
    needs: {extract: optional}
    prompt: Write half a page of findings from the extracts of all interviews. Say which were missing, if any.
"""


@dataclass(frozen=True)
class Scene:
    """A provider, under a name."""

    name: str
    title: str
    config: Config

    def provider(self, seed: int) -> Config:
        """The provider of one seed."""
        return self.config.changed({"seed": seed})


def _config(*, burst: float) -> Config:
    return Config(
        ttft=0.8,
        tokens_per_second=70,
        answer_tokens=(120, 200),
        capacity=4,
        limits=Limits(requests=50, input_tokens=50_000, output_tokens=10_000, burst=burst),
    )


QUOTA = Scene("quota", "A tight quota", _config(burst=0.1))
"""The lowest tier, refilled all the time: of a minute's allowance a tenth may be used at once."""

CROWD = Scene("crowd", "A crowded provider", _config(burst=1.0))
"""The same tier on a generous day: the first minute's allowance lets all 22 in, and they slow each other down."""

SCENES = {scene.name: scene for scene in (QUOTA, CROWD)}


def planned(places: int) -> Planned:
    """The plan as a user would submit it, so many tasks at a time."""
    agents = (ROOT / "agents.yaml").read_text("utf-8")
    return plan_from_text(
        PLAN,
        file="trap.yaml",
        registry=registry_from_text(agents, file="agents.yaml"),
        folder=PlanFolder(ROOT / "examples"),
        params={},
        max_concurrency=places,
        now=datetime.now(UTC),
    )


class Work:
    """The tasks of the plan as requests."""

    def __init__(self) -> None:
        made = planned(4)
        self._plan: Plan = made.plan
        self._files = {ref: content.decode() for ref, content in made.contents.items()}
        *self.tasks, self.synthesis = made.plan.tasks

    def brief(self, task: Task) -> Brief:
        """What a task of the fan-out asks."""
        return brief_for(self._plan, task, (), self._files)

    def synthesis_brief(self, answers: Mapping[str, str | None]) -> Brief:
        """What the synthesis asks, given the answers, where None is one that was lost."""
        texts = {ref_of(answer.encode()): answer for answer in answers.values() if answer is not None}
        inputs = tuple(_input(task.id, answers[task.id]) for task in self.tasks)
        return brief_for(self._plan, self.synthesis, inputs, texts)


def _input(task: str, answer: str | None) -> Input:
    if answer is None:
        return Input(task=task, status=TaskStatus.FAILED, why="the call was lost")
    return Input(task=task, status=TaskStatus.SUCCEEDED, ref=ref_of(answer.encode()))


@dataclass(frozen=True)
class Call:
    """What one answered request takes of the provider when nothing is in its way."""

    input_tokens: int
    output_tokens: int
    max_tokens: int
    seconds: float
    text: str = ""


def foreseen(brief: Brief, config: Config) -> Call:
    """The call that a brief will be: the provider's own arithmetic, asked before anything is sent."""
    body = {
        "model": brief.model,
        "max_tokens": brief.max_tokens,
        "system": brief.system,
        "messages": [{"role": "user", "content": list(brief.content)}],
    }
    prompt, then = read_prompt(body), Then()
    luck = chance(config, prompt, 1)
    answer, pace = answer_to(prompt, then, config, luck), pace_of(then, config, luck)
    seconds = pace.ttft + (answer.tokens / pace.tokens_per_second if pace.tokens_per_second else 0)
    return Call(prompt.tokens, answer.tokens, brief.max_tokens, seconds, answer.text)


def foreseen_work(config: Config) -> tuple[list[Call], Call]:
    """All calls of the fan-out, and the synthesis of their answers."""
    work = Work()
    calls = [foreseen(work.brief(task), config) for task in work.tasks]
    answers = {task.id: call.text for task, call in zip(work.tasks, calls, strict=True)}
    return calls, foreseen(work.synthesis_brief(answers), config)
