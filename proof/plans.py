"""The reference plans, and how the provider answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PROMPT_CANARY = "canaryprompt7q"
"""A word of every prompt. The provider's answers repeat the beginning of the prompt, so it is in them, too."""

SECRET_CANARY = "canarysecret7q"  # noqa: S105
"""What every process has in its environment where others have a key."""

ATTEMPTS = 4
"""Calls of a task that may be lost or fail: a plan promises no more."""

_HEAD = f"""
agents:
  - {{name: hand, version: "1", capabilities: [work], model: claude-haiku-4-5, instructions: Do the task.}}
defaults: {{agent: hand, timeout: 30s, attempts: {ATTEMPTS}, max_tokens: 200}}
"""

_SMALL = f"""
name: small
max_concurrency: 2
{_HEAD}
tasks:
  - {{id: one, prompt: "{PROMPT_CANARY}: begin."}}
  - {{id: odd, prompt: "{PROMPT_CANARY}: what is refused."}}
  - {{id: two, needs: {{one: require, odd: optional}}, prompt: "{PROMPT_CANARY}: go on."}}
  - {{id: never, needs: {{odd: require}}, prompt: "{PROMPT_CANARY}: nobody asks for this."}}
"""

_LARGE = f"""
name: large
max_concurrency: 6
{_HEAD}
tasks:
  - {{id: ground, for_each: {[*range(12)]}, prompt: "{PROMPT_CANARY}: lay {{{{ item }}}}."}}
  - id: wall
    for_each: {[*range(12)]}
    needs: ["ground[0]", "ground[5]", "ground[11]"]
    prompt: "{PROMPT_CANARY}: build {{{{ item }}}}."
  - {{id: odd, prompt: "{PROMPT_CANARY}: what is refused."}}
  - {{id: roof, needs: {{wall: optional, odd: optional}}, quorum: 9, prompt: "{PROMPT_CANARY}: close it."}}
"""

_CAPPED = f"""
name: capped
max_concurrency: 4
budget_usd: 0.004
{_HEAD}
tasks: [{{id: part, for_each: {[*range(16)]}, prompt: "{PROMPT_CANARY}: part {{{{ item }}}}."}}]
"""


@dataclass(frozen=True)
class Reference:
    """A plan to run, and after how many tasks its supervisor continues as new, if sooner than the server suggests."""

    text: str
    tasks: int
    succeed: int
    """How many of its tasks succeed whatever happens to the processes. Calls that are lost use up a small budget."""
    continue_after: int | None = None


PLANS = {
    "small": Reference(_SMALL, tasks=4, succeed=2),
    "large": Reference(_LARGE, tasks=26, succeed=25, continue_after=7),
    "capped": Reference(_CAPPED, tasks=16, succeed=0),
}

SCRIPT: dict[str, Any] = {
    "config": {"ttft": 0.3, "tokens_per_second": 0, "jitter": 0.5, "answer_tokens": [20, 60]},
    "rules": [{"when": {"task": "odd"}, "then": {"fault": "invalid_request"}}],
}
"""Quick answers, so that the proof is quick; each request is long enough to be hit."""
