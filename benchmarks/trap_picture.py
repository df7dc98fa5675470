"""The picture of the trap: how long each way takes until all is done, and what it went through. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from trap_sample import OURS, SDK, UNTIL_DONE, Arm
from trap_taken import CALLS, Taken, arms_to_compare

OURS_COLOUR, THEIRS_COLOUR, LIMIT_COLOUR, WORDS = "#1b7f79", "#c3c8cf", "#b3472d", "#333b45"
FOOTNOTE = "Retried until all is done.   * with the SDK's default retries"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(scenes: Sequence[Taken], file: Path) -> None:
    """A panel for each scene, a bar for each way."""
    import_module("matplotlib").use("Agg")
    plot: Any = import_module("matplotlib.pyplot")
    figure, panels = plot.subplots(1, len(scenes), figsize=(5.6 * len(scenes), 3.9), sharey=True, squeeze=False)
    for axes, taken in zip(panels[0], scenes, strict=True):
        _panel(axes, taken)
    figure.suptitle("Seconds until 22 tasks and their synthesis are done", fontsize=13, x=0.01, ha="left", color=WORDS)
    figure.text(0.01, 0.02, FOOTNOTE, fontsize=8, color=WORDS)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150, metadata={"Software": None})
    plot.close(figure)


def _panel(axes: Any, taken: Taken) -> None:
    arms = [arm for arm in arms_to_compare() if arm.retries != SDK and taken.of(arm)]
    times = [[sample.seconds for sample in taken.of(arm)] for arm in arms]
    middles = [median(seconds) for seconds in times]
    lows = [median(seconds) - min(seconds) for seconds in times]
    highs = [max(seconds) - median(seconds) for seconds in times]
    colours = [OURS_COLOUR if arm.way == OURS else THEIRS_COLOUR for arm in arms]
    axes.barh(range(len(arms)), middles, xerr=[lows, highs], color=colours, height=0.62, error_kw={"ecolor": "#888888"})
    widest = max(middle + high for middle, high in zip(middles, highs, strict=True))
    for row, (arm, middle, high) in enumerate(zip(arms, middles, highs, strict=True)):
        axes.text(middle + high + widest * 0.02, row, _told(taken, arm), va="center", fontsize=8.5, color=WORDS)
    axes.axvline(taken.limit, color=LIMIT_COLOUR, linestyle="--", linewidth=1)
    axes.text(
        taken.limit, -0.8, f"physical limit {taken.limit:.0f} s", color=LIMIT_COLOUR, fontsize=8.5, ha="center",
        va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip
    axes.set_yticks(range(len(arms)), [_name(arm) for arm in arms], fontsize=9.5, color=WORDS)
    axes.set_ylim(len(arms) - 0.45, -1.1)
    axes.set_xlim(0, widest * 1.62)
    axes.set_title(taken.title, fontsize=10.5, loc="left", color=WORDS)
    axes.tick_params(axis="both", length=0, colors=WORDS)
    axes.set_xticks([])
    for side in "top", "right", "bottom":
        axes.spines[side].set_visible(False)


def _name(arm: Arm) -> str:
    return f"{arm.title} at a time" if arm.way.endswith(",") else arm.title


def _told(taken: Taken, arm: Arm) -> str:
    """Seconds, and what was met on the way. Calls lost are those of the same way with the SDK's default retries."""
    found = taken.of(arm)
    words = [f"{median(sample.seconds for sample in found):.0f} s"]
    for number, what in (
        (median(sample.refused for sample in found), " x 429"),
        (median(sample.timeouts for sample in found), " timeouts"),
    ):
        if number:
            words.append(f"{number:.0f}{what}")
    tried = taken.of(Arm(arm.way, arm.places, SDK)) if arm.retries == UNTIL_DONE else found
    lost = median(sample.lost for sample in tried) if tried else 0
    if lost:
        words.append(f"{lost:.0f} of {CALLS} lost*")
    return " · ".join(words)
