"""What a request counts with: never less than it was billed, and never more than was reserved for it (E14)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reading import STOP, end, read, start, text

from activities.counting import counted, counted_so_far
from activities.model import Completion
from activities.reading import KINDS, AnswerReader
from domain.models import Usage

WORST = Usage(input=400, output=50, cache_write=100)
PLAIN = Usage(input=400, output=50)
"""Of a brief in which nothing is marked to be kept in the cache."""

SAYS_ALL = {"input_tokens": 10, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4}
NONSENSE: list[Any] = [-5, 10**12, "many", 1.5, True, None, [], {}]


def answer(usage: dict[str, Any]) -> Completion:
    """What comes of a stream whose words on usage are these, where they belong."""
    return read([start(**{**usage, "output_tokens": 1}), text("one"), end(**usage), STOP])


def test_what_is_told_and_can_be_is_believed() -> None:
    told = counted(answer({**SAYS_ALL, "output_tokens": 50}), WORST)

    assert told.usage == Usage(input=10, output=50, cache_read=3, cache_write=4)


@pytest.mark.parametrize("claim", NONSENSE, ids=str)
def test_an_output_that_is_not_told_or_cannot_be_counts_at_its_worst(claim: Any) -> None:
    told = counted(answer({**SAYS_ALL, "output_tokens": claim}), WORST)

    assert told.usage == Usage(input=10, output=50, cache_read=3, cache_write=4)


@pytest.mark.parametrize("name", sorted(SAYS_ALL))
@pytest.mark.parametrize("claim", NONSENSE, ids=str)
def test_a_prompt_of_which_a_part_is_not_told_or_cannot_be_counts_at_its_worst(name: str, claim: Any) -> None:
    """As a whole: which of its tokens came from the cache is known only when all is known."""
    told = counted(answer({**SAYS_ALL, "output_tokens": 7, name: claim}), WORST)

    assert told.usage == WORST.model_copy(update={"output": 7})


def test_of_a_cache_that_was_not_asked_for_nothing_need_be_said() -> None:
    said = {"input_tokens": 10, "output_tokens": 7}

    assert counted(answer(said), PLAIN).usage == Usage(input=10, output=7)
    assert counted(answer(said), WORST).usage == WORST.model_copy(update={"output": 7})


def test_an_answer_without_a_word_on_usage_counts_at_its_worst() -> None:
    told = counted(answer({}), WORST)

    assert (told.text, told.usage) == ("one", WORST)


def test_what_is_kept_of_an_answer_is_believed_from_then_on() -> None:
    """It is the same when it is found in the ledger as when it came."""
    told = counted(answer({}), WORST)

    assert told.untold == frozenset()
    assert counted(told, WORST) == told


COUNTS = st.one_of(st.none(), st.integers(-10, 700), st.just(10**12), st.booleans(), st.text(max_size=3))
CLAIMS = st.dictionaries(st.sampled_from([*KINDS, "else"]), COUNTS)


@given(first=CLAIMS, last=CLAIMS, whole=st.booleans(), marked=st.booleans())
def test_whatever_is_said_a_request_counts_within_what_was_reserved(
    first: dict[str, Any], last: dict[str, Any], *, whole: bool, marked: bool
) -> None:
    worst = WORST if marked else PLAIN
    events = [start(**first), text("one"), end(**last), STOP]
    if whole:
        usage, rest = counted(read(events), worst).usage, Usage()
    else:
        reader = AnswerReader()
        for event in events[:-1]:
            reader.feed(event)
        usage, rest = counted_so_far(reader, worst)
        assert usage.output + rest.output == worst.output  # more may have been made than had come

    told = usage + rest
    assert min(*usage.model_dump().values(), *rest.model_dump().values()) >= 0
    assert told.output <= worst.output
    assert told.all - told.output <= worst.all - worst.output


def test_an_absurd_word_on_an_answer_that_broke_off_is_not_believed() -> None:
    reader = AnswerReader()
    for event in [start(**{**SAYS_ALL, "input_tokens": 10**12}, output_tokens=10**9), text("one")]:
        reader.feed(event)

    assert counted_so_far(reader, WORST) == (Usage(output=50), WORST.model_copy(update={"output": 0}))
