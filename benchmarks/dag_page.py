"""The page of chain and DAG: a table, and whether it came out as hoped. Pure: samples in, Markdown out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dag_arms import ARMS, CHAIN, CHAIN_OF_THREE, DAG, IN_TURN, ONE_CALL

LATENCY_GOAL, TOKEN_GOAL = 0.6, 1.0


@dataclass(frozen=True)
class Sample:
    """What came of an arm once."""

    arm: str
    seed: int
    calls: int
    seconds: float
    input_tokens: float
    output_tokens: float


def page(samples: Sequence[Sample], *, example: str, day: str) -> str:
    """The page in Markdown."""
    seeds = len({sample.seed for sample in samples})
    head = HEAD.format(example=example, day=day, seeds=f"{seeds} seed{'s' if seeds > 1 else ''}")
    return f"{head}\n\n{table(samples)}\n\n{verdicts(samples)}\n"


def table(samples: Sequence[Sample]) -> str:
    """A row for each arm that was run."""
    rows = [
        "| how | calls | seconds: median | low to high | times one call | tokens: input | output | tokens : chain's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    one, chain = _seconds(samples, ONE_CALL), _tokens(samples, CHAIN)
    for arm in ARMS:
        found = [sample for sample in samples if sample.arm == arm]
        seconds = [sample.seconds for sample in found]
        cells = [
            arm,
            str(found[0].calls),
            f"{median(seconds):.1f}",
            f"{min(seconds):.1f} to {max(seconds):.1f}",
            f"{median(seconds) / one:.1f}",
            f"{median(sample.input_tokens for sample in found):,.0f}",
            f"{median(sample.output_tokens for sample in found):,.0f}",
            f"{_tokens(samples, arm) / chain:.2f}" if arm in (CHAIN, IN_TURN, DAG) else "",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def verdicts(samples: Sequence[Sample]) -> str:
    """Whether it came out as hoped, and whether what the article says of chains was found here."""
    ratios = _ratios(samples)
    tokens = [_tokens(samples, DAG) / _tokens(samples, arm) for arm in (CHAIN, IN_TURN)]
    three = _seconds(samples, CHAIN_OF_THREE) / _seconds(samples, ONE_CALL)
    within = sum(ratio <= LATENCY_GOAL for ratio in ratios)
    latency = (
        f"- Latency: **{median(ratios):.2f}** of the chain's of the same seed, {min(ratios):.2f} to {max(ratios):.2f}; "
        f"within the goal of {LATENCY_GOAL} with {within} of {len(ratios)} seeds. "
        "The article promises 40 to 60 % less."
    )
    cost = (
        f"- Tokens: **{tokens[0]:.2f}** of the chain's, {_kept(tokens[0], TOKEN_GOAL)} the goal of {TOKEN_GOAL}, "
        f"and {tokens[1]:.2f} of the same tasks one at a time. The article warns of 1.7."
    )
    length = f"- A chain of three takes {three:.1f} times one call; the article says 2.8 to 3.5."
    return "\n".join((latency, cost, length))


def _kept(value: float, goal: float) -> str:
    return "within" if value <= goal else "above"


def _ratios(samples: Sequence[Sample]) -> list[float]:
    """Seconds of the DAG to those of the chain of the same seed."""
    chains = {sample.seed: sample.seconds for sample in samples if sample.arm == CHAIN}
    return [sample.seconds / chains[sample.seed] for sample in samples if sample.arm == DAG]


def _seconds(samples: Sequence[Sample], arm: str) -> float:
    return median(sample.seconds for sample in samples if sample.arm == arm)


def _tokens(samples: Sequence[Sample], arm: str) -> float:
    return median(sample.input_tokens + sample.output_tokens for sample in samples if sample.arm == arm)


HEAD = """# Chain and DAG

`benchmarks/dag.py` runs the seven tasks of [{example}](../{example}) in several shapes,
each in a home of its own on the simulator, {seeds}, {day}:

- *one call*: one task alone, the mean of three; and *chain of 3*: these three, each after the one before it
- *chain*: all tasks, each after the one before it and told its result, besides what it needs anyway
- *one at a time*: the plan as it is, with `max_concurrency: 1`
- *DAG*: the plan as it is, five at a time, which is as many as can begin

With the same seed a task is answered at the same length and pace in every shape. Seconds are from submit to the end of
the run, by the clock of whoever waits for it. Tokens are those that were billed. Figures are medians over the seeds."""
