"""Reading a streamed answer: over all the places where a stream can end, only a whole one counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities import reading
from activities.model import AnswerTooLarge, Completion, Garbled, ModelError, StreamCut
from activities.reading import AnswerReader
from domain.models import Usage

Event = dict[str, Any]

STOP: Event = {"type": "message_stop"}
NOISE: list[Event] = [
    {"type": "ping"},
    {"type": "brand_new_event", "delta": {"type": "text_delta", "text": "not an answer"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}},
    {"type": "content_block_stop", "index": 0},
]


TOLD = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
"""What is said of a cache that was not used."""


def start(**usage: Any) -> Event:
    return {"type": "message_start", "message": {"id": "m", "usage": usage}}


def text(piece: Any) -> Event:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}


def end(reason: Any = "end_turn", **usage: Any) -> Event:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


def read(events: list[Event]) -> Completion:
    reader = AnswerReader()
    for event in events:
        reader.feed(event)
    return reader.completion()


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[Event]]:
    """A whole stream and its text, with events among it that are not for us."""
    pieces = draw(st.lists(st.text(max_size=20), max_size=12))
    body = [text(piece) for piece in pieces]
    for noise in draw(st.lists(st.sampled_from(NOISE), max_size=6)):
        body.insert(draw(st.integers(0, len(body))), noise)
    return "".join(pieces), [start(**TOLD, input_tokens=7, output_tokens=1), *body, end(output_tokens=9), STOP]


@settings(max_examples=200, deadline=None)
@given(streams())
def test_no_place_to_cut_a_stream_makes_a_partial_answer_count(stream: tuple[str, list[Event]]) -> None:
    """Every cut of every stream, some 2,000 in all: only the whole one is an answer (E8)."""
    whole, events = stream

    for cut in range(len(events)):
        with pytest.raises(StreamCut if cut else Garbled):
            read(events[:cut])

    assert read(events) == Completion(text=whole, usage=Usage(input=7, output=9), stop_reason="end_turn")


@settings(max_examples=200, deadline=None)
@given(streams(), st.data())
def test_a_stream_that_lost_an_event_is_whole_or_no_answer(
    stream: tuple[str, list[Event]], data: st.DataObject
) -> None:
    """Start, stop reason and stop are each indispensable, wherever the loss is."""
    _, events = stream
    lost = data.draw(st.sampled_from([events[0], events[-2], events[-1]]))

    with pytest.raises((StreamCut, Garbled)):
        read([event for event in events if event is not lost])


def test_new_text_is_given_as_it_comes() -> None:
    heard: list[str] = []
    reader = AnswerReader(on_text=heard.append)

    for event in [start(), *NOISE, text("one "), text(""), text("two"), end(), STOP]:
        reader.feed(event)

    assert heard == ["one ", "two"]
    assert reader.completion().text == "one two"


def test_what_came_of_a_broken_answer_can_still_be_read() -> None:
    """It is no answer, but it was paid for: people may read it, and the provider's own word on its cost counts."""
    reader = AnswerReader()
    assert (reader.text, reader.usage, reader.begun) == ("", Usage(), False)
    assert "input" in reader.untold

    for event in [start(input_tokens=10, cache_read_input_tokens=3, output_tokens=1), text("one "), text("two")]:
        reader.feed(event)

    with pytest.raises(StreamCut):
        reader.completion()
    assert (reader.text, reader.begun) == ("one two", True)
    assert reader.untold == {"cache_write", "output"}
    assert reader.usage == Usage(input=10, output=1, cache_read=3)


@pytest.mark.parametrize(
    "claimed",
    [{}, {"output_tokens": 1}, {"input_tokens": -3}, {"input_tokens": "many"}, {"input_tokens": True}, TOLD],
    ids=str,
)
def test_a_provider_that_does_not_say_what_it_read_has_not_told_it(claimed: dict[str, Any]) -> None:
    """Then the worst case is counted (E14). A prompt of no token is none that anybody has read."""
    reader = AnswerReader()

    reader.feed(start(**claimed))

    assert (reader.begun, "input" in reader.untold) == (True, True)


@pytest.mark.parametrize("usage", [None, [], "many", 5, {}])
def test_a_message_without_a_word_on_usage_is_an_answer_of_which_nothing_is_told(usage: Any) -> None:
    """It was paid, and can be used; what it counts is for whoever knows its worst case (E14)."""
    begun = {"type": "message_start", "message": {"usage": usage}}
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}

    completion = read([begun, text("one"), ended, STOP])

    assert (completion.text, completion.usage) == ("one", Usage())
    assert completion.untold == {"input", "output", "cache_read", "cache_write"}


def test_the_later_word_on_usage_stands() -> None:
    first = start(input_tokens=10, cache_read_input_tokens=3, cache_creation_input_tokens=4, output_tokens=1)

    assert read([first, end(output_tokens=50), STOP]).usage == Usage(input=10, output=50, cache_read=3, cache_write=4)
    assert read([first, end(output_tokens=50, input_tokens=12), STOP]).usage.input == 12
    assert read([first, end(None, output_tokens=20), end(output_tokens=50), STOP]).usage.output == 50


@pytest.mark.parametrize("claimed", [-5, "many", 1.5, True, [], {}])
def test_a_claim_about_usage_that_is_no_count_is_not_believed(claimed: Any) -> None:
    """It does not break the answer; and what was said before is not believed any more (E14)."""
    begun = start(**TOLD, input_tokens=10, output_tokens=1)

    completion = read([begun, end(output_tokens=claimed, input_tokens=claimed), STOP])

    assert completion.usage == Usage()
    assert completion.untold == {"input", "output"}


@pytest.mark.parametrize("usage", [{}, {"output_tokens": None}, {"output_tokens": 0}, {"input_tokens": 10}], ids=str)
def test_the_output_is_told_where_it_ends(usage: dict[str, Any]) -> None:
    """The count where an answer begins only keeps a place; and no text is made of no token."""
    completion = read([start(**TOLD, input_tokens=10, output_tokens=1), text("one"), end(**usage), STOP])

    assert completion.usage.input == 10
    assert completion.untold == {"output"}


def test_an_answer_without_a_word_may_be_one_of_no_token() -> None:
    assert read([start(**TOLD, input_tokens=10), end(output_tokens=0), STOP]).untold == frozenset()


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start"},
        {"type": "message_start", "message": None},
        {"type": "message_start", "message": "hello"},
        {"type": "message_delta"},
        {"type": "message_delta", "delta": None},
        {"type": "message_delta", "delta": {}},
        {"type": "message_delta", "delta": {"stop_reason": 5}},
        {"type": "message_delta", "delta": {"stop_reason": ["end_turn"]}},
    ],
)
def test_a_wrong_shape_is_garbled(event: Event) -> None:
    reader = AnswerReader()

    with pytest.raises(Garbled):
        reader.feed(event)


@pytest.mark.parametrize(
    "event",
    [
        text(None),
        text(5),
        text(["a"]),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        {"type": "content_block_delta", "index": 0, "delta": "some text"},
        {"type": "content_block_delta", "index": 0},
    ],
)
def test_a_piece_of_text_that_cannot_be_read_does_not_leave_a_hole_in_an_answer(event: Event) -> None:
    """An answer counts only when it is whole: one with a lost piece in its middle is garbled, not accepted."""
    with pytest.raises(Garbled):
        read([start(), text("one "), event, text("three"), end(), STOP])


@pytest.mark.parametrize("events", [[], [{}], [{"type": None}], [{"unexpected": ["shape"]}], [end(), STOP], [STOP]])
def test_what_never_began_is_garbled(events: list[Event]) -> None:
    with pytest.raises(Garbled):
        read(events)


@pytest.mark.parametrize("events", [[text("early"), start(), end(), STOP], [start(), end(), STOP, text("late")]])
def test_text_outside_of_the_message_is_garbled(events: list[Event]) -> None:
    with pytest.raises(Garbled):
        read(events)


def test_an_answer_is_cut_off_at_the_byte_that_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it streams, and in bytes, not characters (E13)."""
    monkeypatch.setattr(reading, "ANSWER_LIMIT", 10)
    reader = AnswerReader()
    reader.feed(start())
    reader.feed(text("ééééé"))

    with pytest.raises(AnswerTooLarge):
        reader.feed(text("x"))

    assert read([start(), text("ééééé"), end(), STOP]).text == "ééééé"


def test_a_lone_surrogate_does_not_make_an_answer_that_cannot_be_stored() -> None:
    answer = read([start(), text("a\ud800b"), text("é€😀"), end(), STOP]).text

    assert answer.encode().decode() == answer
    assert answer == "a?bé€😀"


def test_no_error_repeats_what_the_provider_said() -> None:
    """Their messages are ours."""
    for events in [[text("CANARY")], [{"type": "message_start", "message": "CANARY"}], [start(), text("CANARY")]]:
        with pytest.raises(ModelError) as caught:
            read(events)
        assert "CANARY" not in str(caught.value)
