"""What dependencies buy: the tasks of an example as a chain and as the DAG that they are, in seconds and in tokens.

    .venv/bin/python benchmarks/dag.py                  # 5 seeds, in about ten minutes; writes docs/dag.md
    .venv/bin/python benchmarks/dag.py --seeds 1 --no-page

Every run is a run of Nightcrew on a simulator without limits, in a home of its own that has been used once before the
clock starts. With the same seed a task is answered at the same length and pace in every shape. Seconds are from submit
to the end of the run.
"""
# ruff: noqa: E402 - the environment is cleaned, and our code is found, before anything is imported

from __future__ import annotations

import os

for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "TEMPORAL_", "OTEL_", "NIGHTCREW_"))]:
    del os.environ[name]  # a benchmark spends no money, and touches no cluster
os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull

import argparse
import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dag_arms import ARMS, luck, shaped, warm_up
from dag_page import Sample, page
from homes import new_home

from runtime import leave
from terminal.plans import read_plan

EXAMPLE = "examples/competitor-brief.yaml"
PAGE = ROOT / "docs" / "dag.md"


async def take(arm: str, seed: int) -> Sample:
    """Run one arm once; of several plans, the mean."""
    example = read_plan(str(ROOT / EXAMPLE), params={}, agents=None)
    with tempfile.TemporaryDirectory(prefix="nightcrew-") as folder:
        script = Path(folder) / "luck.json"
        script.write_text(luck(example.plan.tasks, seed), "utf-8")
        async with new_home(["--script", str(script)]) as home:
            await home.run(warm_up(example))  # imports and caches are not what is measured
            plans = shaped(example, arm)
            start = perf_counter()
            ended = [await home.run(plan) for plan in plans]
            seconds = (perf_counter() - start) / len(plans)
    calls = len(plans[0].plan.tasks)
    if any(one.census.succeeded != calls for one in ended):
        raise RuntimeError(f"{arm}: not every task succeeded, so there is nothing to compare")
    return Sample(arm, seed, calls, seconds, mean(e.tokens.input for e in ended), mean(e.tokens.output for e in ended))


async def measure(seeds: int) -> list[Sample]:
    """The arms in turns, each seed in another order."""
    samples: list[Sample] = []
    for seed in range(1, seeds + 1):
        turn = seed % len(ARMS)
        for arm in (*ARMS[turn:], *ARMS[:turn]):
            samples.append(sample := await take(arm, seed))
            tokens = f"{sample.input_tokens:>6.0f} in {sample.output_tokens:>5.0f} out"
            print(f"seed {seed}  {arm:<14} {sample.calls} calls {sample.seconds:>6.2f} s  {tokens}", flush=True)
    return samples


def main() -> None:
    """Read the command line, measure, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-page", action="store_true", help="leave docs/dag.md as it is")
    options = parser.parse_args()
    samples = asyncio.run(measure(options.seeds))
    if not options.no_page:
        PAGE.write_text(page(samples, example=EXAMPLE, day=f"{datetime.now(UTC):%-d %B %Y}"), "utf-8")
    leave(0)


if __name__ == "__main__":
    main()
