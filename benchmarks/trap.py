"""The trap of concurrency, made and measured: 22 tasks and a synthesis on one quota, in the ways of today and in ours.

    .venv/bin/python benchmarks/trap.py                               # both scenes, 3 seeds, in about an hour
    .venv/bin/python benchmarks/trap.py --seeds 1 --scenes quota      # in ten minutes
    .venv/bin/python benchmarks/trap.py --keep FILE                   # every sample is kept, as a line of JSON
    .venv/bin/python benchmarks/trap.py --keep FILE --only Nightcrew --no-page      # some arms anew
    .venv/bin/python benchmarks/trap.py --again FILE                  # no measuring: the page from what was kept

LangGraph and matplotlib are optional (`pip install --group trap`): without them an arm and the picture are left out.
The arms take turns, each seed in another order, every sample on a provider of its own that begins with full buckets.
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
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trap_graph import langgraph_version, load_langgraph
from trap_homes import take
from trap_limit import physical_limit
from trap_page import page
from trap_picture import can_draw, draw
from trap_sample import LANGGRAPH, Sample, keep, read_samples
from trap_scene import SCENES, Scene, foreseen_work
from trap_taken import Taken, all_arms

from runtime import leave

HEADROOM = 0.1
PAGE, PICTURE = ROOT / "docs" / "trap.md", ROOT / "docs" / "pictures" / "trap.png"
NO_LANGGRAPH = "LangGraph was not installed (`pip install --group trap`), so its arm is left out."


async def measure(scenes: Sequence[Scene], seeds: int, only: Sequence[str], kept: Path | None) -> list[Sample]:
    """Every arm with one of these words in its title on every seed, printed as it comes."""
    arms = [arm for arm in all_arms() if any(word in arm.title for word in only)]
    if langgraph_version():
        load_langgraph()
    else:
        arms = [arm for arm in arms if arm.way != LANGGRAPH]
        print(NO_LANGGRAPH)
    samples: list[Sample] = []
    print(f"{'scene':<6} {'seed':>4}  {'how':<20} {'retries':<10} seconds  first  lost  timeouts  429s")
    for seed in range(1, seeds + 1):
        turn = seed * len(arms) // (seeds + 1)
        for scene in scenes:
            for arm in (*arms[turn:], *arms[:turn]):
                samples.append(sample := await take(scene, arm, seed))
                print(
                    f"{scene.name:<6} {seed:>4}  {arm.title:<20} {arm.retries:<10} {sample.seconds:>7.1f} "
                    f"{sample.first:>6.1f} {sample.lost:>5} {sample.timeouts:>9} {sample.refused:>5}",
                    flush=True,
                )
                if kept:
                    keep(sample, kept)
    return samples


def taken_of(scene: Scene, samples: Sequence[Sample]) -> Taken:
    """The samples of a scene, with the limits of their seeds."""
    mine = [sample for sample in samples if sample.scene == scene.name]
    return Taken(scene.title, mine, {seed: limits_of(scene, seed) for seed in sorted({s.seed for s in mine})})


def limits_of(scene: Scene, seed: int) -> tuple[float, float]:
    """The physical limit of the whole quota, and of what the headroom leaves."""
    config = scene.provider(seed)
    calls, synthesis = foreseen_work(config)
    whole, left = (
        physical_limit(calls, synthesis, config.limits, capacity=config.capacity, headroom=headroom)
        for headroom in (0.0, HEADROOM)
    )
    return whole, left


def write_page(samples: Sequence[Sample]) -> None:
    """The page and the picture."""
    scenes = [scene for scene in SCENES.values() if any(sample.scene == scene.name for sample in samples)]
    taken = {scene: taken_of(scene, samples) for scene in scenes}
    if can_draw():
        draw(list(taken.values()), PICTURE)
    else:
        print("matplotlib is not installed (`pip install --group trap`), so the picture stays as it is.")
    left_out = None if any(sample.arm.way == LANGGRAPH for sample in samples) else NO_LANGGRAPH
    PAGE.write_text(page(taken, made=made_of(samples), headroom=HEADROOM, left_out=left_out), "utf-8")


def made_of(samples: Sequence[Sample]) -> str:
    """When and with what."""
    seeds = len({sample.seed for sample in samples})
    graph = f", LangGraph {known}" if (known := langgraph_version()) else ""
    versions = f"anthropic {version('anthropic')}{graph}"
    return f"{datetime.now(UTC):%-d %B %Y}, {seeds} seed{'s' if seeds > 1 else ''}, {versions}; medians over the seeds"


def main() -> None:
    """Read the command line, measure, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenes", nargs="+", choices=sorted(SCENES), default=list(SCENES))
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="arms with such a word in their title")
    parser.add_argument("--keep", type=Path, help="append every sample to this file as a line of JSON")
    parser.add_argument("--again", type=Path, help="measure nothing: write the page from samples that were kept")
    parser.add_argument("--no-page", action="store_true", help="leave the page and the picture as they are")
    options = parser.parse_args()
    if options.again:
        samples = read_samples(options.again)
    else:
        scenes = [SCENES[name] for name in options.scenes]
        samples = asyncio.run(measure(scenes, options.seeds, options.only, options.keep))
    if not options.no_page:
        write_page(samples)
    leave(0)


if __name__ == "__main__":
    main()
