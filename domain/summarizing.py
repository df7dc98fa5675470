"""The call for a summary: who makes it, and what it is told."""

from __future__ import annotations

from domain.briefing import STANDING_RULES, Brief, document, heading, said
from domain.cutting import shorten
from domain.models import Agent, Plan, Task
from domain.summaries import SUMMARIZER, SUMMARY_BYTES, SUMMARY_WORDS

SUMMARIZED_BYTES, BYTES_A_TOKEN = 50_000, 8
"""Of a longer text only so much is read for a summary, and of each token that its task may answer: a cheap call must
stay one, and what it costs at most must be known before it is made. Agents put what matters first."""

SUMMARIZER_TOKENS = 300
"""What the call for a summary may answer: SUMMARY_BYTES at two bytes a token."""

ASSIGNMENT = (
    "Sum up the document for agents that work on with it and do not see it: "
    f"at most {SUMMARY_WORDS} words ({SUMMARY_BYTES} bytes), plain text, in the language of the document. "
    "Keep the conclusion, and the names, figures and reservations that others need. Answer with the summary alone."
)


def summarizer_for(plan: Plan, task: Task) -> Agent:
    """Who makes the summary of a task's result: the agent of that name, else the one that did the task.

    Its model is surely there for this key. A plan has a summarizer when its registry had one at submit.
    """
    agents = {agent.called: agent for agent in plan.agents}
    return agents.get(SUMMARIZER, agents[task.agent])


def most_read(task: Task) -> int:
    """The bytes of a result that are read for its summary."""
    return min(SUMMARIZED_BYTES, BYTES_A_TOKEN * task.max_tokens)


def summary_brief(plan: Plan, task: Task, text: str) -> Brief:
    """The request for a summary of a result."""
    agent = summarizer_for(plan, task)
    read = shorten(text, most_read(task))
    whole = document(task.id, f"the result of task {task.id!r}", read)
    return Brief(
        model=agent.model,
        max_tokens=SUMMARIZER_TOKENS,
        system=f"{agent.instructions.strip()}\n\n{STANDING_RULES}",
        content=(said(heading(plan, task, agent)), whole, said(ASSIGNMENT)),
    )
