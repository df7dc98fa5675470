"""The answer to a prompt: what a rule says, and a plausible text where it says nothing."""

from __future__ import annotations

import random

from simulator.caching import NOTHING, Cached
from simulator.config import Config
from simulator.messages import Answer
from simulator.prompt import CHARACTERS_PER_TOKEN, Prompt
from simulator.prose import made_up_summary, plausible_text, summary_mark, text_of_size
from simulator.replies import Pace
from simulator.script import Then
from simulator.structured import by_schema


def chance(config: Config, prompt: Prompt, occurrence: int) -> random.Random:
    """The randomness of one request: of its seed, its prompt and how often that was asked, never of who came first."""
    return random.Random(f"{config.seed}/{prompt.hash}/{occurrence}")  # noqa: S311


def answer_to(prompt: Prompt, then: Then, config: Config, chance: random.Random, cached: Cached = NOTHING) -> Answer:
    """What the model says, cut at max_tokens; what was cached is the truth unless the rule says otherwise."""
    tokens = chance.randint(*config.answer_tokens)
    text = _closed(_text(prompt, then, tokens, chance), prompt, then, chance)
    kept = text[: prompt.max_tokens * CHARACTERS_PER_TOKEN]
    stop_reason = "max_tokens" if len(kept) < len(text) else ("tool_use" if then.tool else "end_turn")
    if is_scripted(then):
        cached = Cached(then.cache_read or 0, then.cache_write or 0)
    read = min(cached.read, prompt.tokens)
    written = min(cached.written, prompt.tokens - read)
    return Answer(
        id=f"msg_simulated_{chance.randbytes(9).hex()}",
        model=prompt.model,
        text=kept,
        stop_reason=then.stop_reason or stop_reason,
        input=prompt.tokens - read - written,
        cache_read=read,
        cache_write=written,
        claims=then.usage,
        tool=then.tool,
    )


def is_scripted(then: Then) -> bool:
    """Whether a rule says what was cached, in place of the cache."""
    return then.cache_read is not None or then.cache_write is not None


def pace_of(then: Then, config: Config, chance: random.Random) -> Pace:
    """How fast this answer comes. What a rule says is exact; the default varies."""
    early, fast = (chance.uniform(1 - config.jitter, 1 + config.jitter) for _ in range(2))
    return Pace(
        ttft=config.ttft * early if then.ttft is None else then.ttft,
        tokens_per_second=(
            config.tokens_per_second * fast if then.tokens_per_second is None else then.tokens_per_second
        ),
    )


def _closed(text: str, prompt: Prompt, then: Then, chance: random.Random) -> str:
    """The text, and below it the summary that the prompt asks for."""
    mark = summary_mark(prompt)
    if mark is None or then.summary is False or then.tool:
        return text
    summary = then.summary if isinstance(then.summary, str) else made_up_summary(prompt, chance)
    return f"{text}\n\n{mark}\n{summary}"


def _text(prompt: Prompt, then: Then, tokens: int, chance: random.Random) -> str:
    if then.answer is not None:
        return then.answer
    if then.answer_bytes is not None:
        return text_of_size(then.answer_bytes, chance)
    if then.answer_tokens is not None:
        return text_of_size(then.answer_tokens * CHARACTERS_PER_TOKEN, chance)
    if prompt.schema is not None:
        return by_schema(prompt, then, chance)
    return plausible_text(prompt, chance, tokens)
