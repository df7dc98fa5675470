"""Every sample on a provider of its own, with full buckets: for ours as part of a home, for the ways of today alone."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from homes import new_home
from trap_arms import WAYS, Crew
from trap_sample import OURS, Arm, Sample, read_bill, sample_of
from trap_scene import Scene, planned

from embedded import Simulator, prepare_home
from simulator.config import Config


async def take(scene: Scene, arm: Arm, seed: int) -> Sample:
    """Run one arm once."""
    options = simulator_options(scene.provider(seed))
    return await (ours if arm.way == OURS else theirs)(scene, arm, seed, options)


async def theirs(scene: Scene, arm: Arm, seed: int, options: list[str]) -> Sample:
    """One of the ways of today: it needs a provider, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="nightcrew-") as folder:
        home = Path(folder) / "home"
        prepare_home(home)
        simulator = Simulator(home, options)
        await simulator.start()
        try:
            state = simulator.find()
            if state is None:
                raise RuntimeError("there is no simulator")
            crew = Crew(str(state.details["url"]), arm)
            began, start = time.time(), time.perf_counter()
            await WAYS[arm.way](crew, arm.places)
            seconds = time.perf_counter() - start
            await crew.close()
        finally:
            await simulator.stop()
        return sample_of(scene.name, arm, seed, began=began, seconds=seconds, lost=crew.lost, bill=read_bill(home))


async def ours(scene: Scene, arm: Arm, seed: int, options: list[str]) -> Sample:
    """A run as users start it. The home is new, so its meter knows nothing yet of this provider."""
    plan = planned(arm.places)
    async with new_home(options) as home:
        began, start = time.time(), time.perf_counter()
        ended = await home.run(plan)
        seconds = time.perf_counter() - start
        lost = len(plan.plan.tasks) - ended.census.succeeded
        return sample_of(scene.name, arm, seed, began=began, seconds=seconds, lost=lost, bill=read_bill(home.folder))


def simulator_options(config: Config) -> list[str]:
    """The provider, as its command line takes it."""
    limits = config.limits
    low, high = config.answer_tokens
    options = {
        "--seed": config.seed,
        "--ttft": config.ttft,
        "--tokens-per-second": config.tokens_per_second,
        "--jitter": config.jitter,
        "--capacity": config.capacity,
        "--requests-per-minute": limits.requests,
        "--input-tokens-per-minute": limits.input_tokens,
        "--output-tokens-per-minute": limits.output_tokens,
        "--burst": limits.burst,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return [*given, "--answer-tokens", str(low), str(high)]
