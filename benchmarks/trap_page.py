"""The page of the trap, docs/trap.md: what was measured, how, and what came of it. Pure: samples in, Markdown out."""

from __future__ import annotations

from collections.abc import Mapping

from trap_claims import claims, goal
from trap_scene import TIMEOUT, Scene
from trap_table import sweep, table, uneven
from trap_taken import Taken


def page(taken: Mapping[Scene, Taken], *, made: str, headroom: float, left_out: str | None) -> str:
    """The page in Markdown. `made` says when and with what, `left_out` what could not be measured."""
    sections = [HEAD.format(timeout=f"{TIMEOUT.total_seconds():.0f}", made=made)]
    if left_out:
        sections.append(left_out)
    for scene, one in taken.items():
        limits = (
            f"The physical limit is {one.limit:.1f} s, and {one.left:.1f} s with a headroom of {100 * headroom:.0f} %."
        )
        sections += [f"## {scene.title}", f"{ABOUT[scene.name]} {limits}", table(one), goal(one)]
        sections += [f"### {scene.title}: concurrency as a dial", sweep(one)]
        sections += [missing] if (missing := uneven(one)) else []
    sections += ["## What the article says, and what was found here", RULES, claims(taken.values())]
    return "\n\n".join(sections) + "\n"


HEAD = """# The trap of concurrency

22 agents at once fight for one quota; people report that they are slower than five. `benchmarks/trap.py` sets the trap
and measures who falls into it: 22 tasks, one for each file of [examples/notes](../examples/notes), and a synthesis of
their answers, on a simulated provider with the limits of a lowest tier: 50 requests, 50,000 input and 10,000 output
tokens a minute, `max_tokens` charged ahead. A call takes about 3 s and is given up after {timeout} s; above four in
flight all become slower in proportion. Every arm sends the same requests, and with the same seed gets the same answers
at the same pace.

![Seconds until all is done, by way and scene](pictures/trap.png)

\\* with the default retries of the SDK. The bars are of the same way retried until all is done.

The ways of today are plain asyncio on the provider's SDK, and LangGraph with its `max_concurrency`. Each is measured
twice: with the SDK's default retries (two; then the call is lost, and the synthesis is told), and retried until all is
done, each time after the delay that the provider asks for. Nightcrew is a run as users start it, in a new home where
nothing is set: it has yet to learn the limits. Its time is from submit to the end of the run. Timeouts and 429s are
counted from the provider's log. The physical limit is computed from the quota: no order and no concurrency could be
faster.

Made by `benchmarks/trap.py`: {made}."""

RULES = (
    "Times are of arms that are retried until all is done. Those within 5 % of each other count as the same; the first "
    "claim counts as held from three quarters of the article's ratio. A spot is sweet when nothing is faster and 22 at "
    "a time are slower."
)

ABOUT = {
    "quota": "A tenth of a minute's allowance may be used at once: five requests, then one every 1.2 s.",
    "crowd": (
        "A whole minute's allowance may be used at once, so the quota lets all 22 in, and they slow each other down. "
        "This is the article's experiment at 2.5 times its speed, as far as it can be guessed: that the provider slows "
        "down above four is an assumption of this scene, and with the timeout it decides where the sweet spot lies."
    ),
}
