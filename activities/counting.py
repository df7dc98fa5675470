"""What a request counts with: what the provider said that it used, where that can be, else what was reserved.

Nothing above what was reserved is believed: no more can be billed for so many bytes in and so many tokens out. And
nothing is free because nobody told what it cost, or told what cannot be. So by our own counting no budget is overspent.
"""

from __future__ import annotations

import structlog

from activities.model import Completion
from activities.reading import AnswerReader
from domain.models import Usage

log = structlog.get_logger()


def counted(completion: Completion, worst: Usage) -> Completion:
    """An answer with what it counts. To be asked before it is kept: what is kept is believed by everybody."""
    said, untold = completion.usage, completion.untold
    prompt = said if _is_prompt_told(said, untold, worst) else worst
    answer = said if "output" not in untold and said.output <= worst.output else worst
    if prompt is worst or answer is worst:
        log.warning("usage_not_told", input=prompt is said, output=answer is said)
    usage = prompt.model_copy(update={"output": answer.output})
    return completion.model_copy(update={"usage": usage, "untold": frozenset[str]()})


def counted_so_far(reader: AnswerReader, worst: Usage) -> tuple[Usage, Usage]:
    """The same of an answer that broke off: what of its cost can be believed, and what may be billed on top."""
    said, prompt, rest = reader.usage, Usage(), worst
    if _is_prompt_told(said, reader.untold, worst):
        prompt, rest = said, Usage()
    output = min(said.output, worst.output)
    return prompt.model_copy(update={"output": output}), rest.model_copy(update={"output": worst.output - output})


def _is_prompt_told(said: Usage, untold: frozenset[str], worst: Usage) -> bool:
    """Whether what was said of the input can be. Of a cache nothing need be said where nothing was to be kept in it."""
    needed = {"input", "cache_read", "cache_write"} if worst.cache_write else {"input"}
    return not needed & untold and _tokens_in(said) <= _tokens_in(worst)


def _tokens_in(usage: Usage) -> int:
    return usage.all - usage.output
