"""What earlier runs teach: how long the answers of an agent were, and how long it took for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from domain.costs import AgentShare
from domain.values import Value


class Experience(Value):
    """Answers of one agent, added up."""

    answers: int = 0
    output: int = 0
    """Tokens of all of them."""
    seconds: float = 0.0
    """What they took, without waits."""

    def __add__(self, other: Experience) -> Experience:
        return Experience(
            answers=self.answers + other.answers,
            output=self.output + other.output,
            seconds=self.seconds + other.seconds,
        )

    def output_of_one(self, guess: int) -> int:
        """Tokens of the next answer. The guess counts as one answer: a single run may have been an exception."""
        return round((self.output + guess) / (self.answers + 1))

    def seconds_of_one(self, guess: float) -> float:
        """What the next answer takes."""
        return (self.seconds + guess) / (self.answers + 1)


NONE = Experience()


def experience_of(runs: Iterable[Iterable[AgentShare]]) -> Mapping[str, Experience]:
    """What runs have taught, by agent and version: another version is told other things, and answers otherwise."""
    learned: dict[str, Experience] = {}
    for shares in runs:
        for share in shares:
            of_run = Experience(answers=share.answers, output=share.answered, seconds=share.seconds)
            learned[share.agent] = learned.get(share.agent, NONE) + of_run
    return learned
