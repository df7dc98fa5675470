"""One run of one arm: what its user saw, and what the provider's bill says of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simulator.provider import MESSAGES


@dataclass(frozen=True)
class Arm:
    """A way to do the work: how calls are let go, so many at a time, and what is done about a refused one."""

    way: str
    places: int
    retries: str
    """`sdk`: the SDK's own, then the call is lost. `until done`: as often as it takes. `own`: Nightcrew's way."""

    @property
    def title(self) -> str:
        """As tables and pictures name it."""
        return self.way if self.way == ALL else f"{self.way} {self.places}"


ALL, WAVES, SEMAPHORE, LANGGRAPH, OURS = "all at once", "waves of", "semaphore of", "LangGraph,", "Nightcrew,"
SDK, UNTIL_DONE, OWN = "sdk", "until done", "own"


@dataclass(frozen=True)
class Sample:
    """What came of an arm once."""

    scene: str
    arm: Arm
    seed: int
    seconds: float
    """From the start to the end of the synthesis."""
    first: float
    """To the first answer."""
    requests: int
    refused: int
    """Requests that were answered by a 429."""
    timeouts: int
    """Requests that their client gave up."""
    lost: int
    """Tasks without an answer in the end, the synthesis among them."""


def sample_of(
    scene: str, arm: Arm, seed: int, *, began: float, seconds: float, lost: int, bill: Iterable[dict[str, Any]]
) -> Sample:
    """The sample, with what the bill tells. `began` is on the bill's clock."""
    entries = [entry for entry in bill if entry["path"] == MESSAGES]
    answers = [entry["ended"] for entry in entries if entry["stop_reason"] is not None and not entry["client_left"]]
    return Sample(
        scene=scene,
        arm=arm,
        seed=seed,
        seconds=seconds,
        first=min(answers) - began if answers else seconds,
        requests=len(entries),
        refused=sum(entry["status"] == 429 for entry in entries),
        timeouts=sum(entry["client_left"] for entry in entries),
        lost=lost,
    )


def read_bill(home: Path) -> list[dict[str, Any]]:
    """What the simulator of a home has written down."""
    return [json.loads(line) for line in (home / "simulator.jsonl").read_text("utf-8").splitlines()]


def keep(sample: Sample, file: Path) -> None:
    """Append a sample to a file of them, as a line of JSON."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(sample)) + "\n")


def read_samples(file: Path) -> list[Sample]:
    """The samples of a file. What was measured again counts as it came last."""
    documents = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    samples = [Sample(**{**document, "arm": Arm(**document["arm"])}) for document in documents]
    return list({(sample.scene, sample.arm, sample.seed): sample for sample in samples}.values())
