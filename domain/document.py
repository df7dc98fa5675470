"""Strict YAML, and JSON as its subset: text becomes a tree whose nodes know where they were written.

Built from parser events without recursion, so that depth is an error and never a crash. Refused is what surprises
people or machines: aliases, tags, duplicate keys, NaN, several documents, control characters.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from domain.problems import TOP, Invalid, Place, Problem, Problems, quoted
from domain.tree import Broken, Entry, Mapping, Node, Scalar, Sequence, Source, describe

__all__ = ["Invalid", "Problem", "decode", "parse"]

MAX_BYTES = 5_000_000
MAX_DEPTH = 20
MAX_NODES = 500_000

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What no text of a plan may hold: control characters but newline and tab, and what is not a character."""

_NOT_IN_SOURCE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_INT = re.compile("[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile("[-+]?0(?:[0-9]+|o[0-7]+)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|NaN|[-+]?Infinity")
_WORDS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_READINGS = {"bool": "true or false", "int": "a number", "float": "a number", "timestamp": "a date"}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_old_yaml: Any = yaml.resolver.Resolver()


def decode(content: bytes, file: str) -> str:
    """The text of a file that must be UTF-8, or `Invalid` with the place of the first byte that is not."""
    problems = Problems(file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        problems.add(Source(before).place(len(before)), "the file is not UTF-8 text", hint="save it as UTF-8")
        raise Invalid(problems.in_order()) from None


def parse(text: str, problems: Problems) -> tuple[Source, Node | None]:
    """The source and the tree of its one document. No tree when the text cannot be read at all."""
    source = Source(text.removeprefix("\ufeff"))
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        problems.add(TOP, f"the file is larger than {MAX_BYTES // 1_000_000} MB")
        return source, None
    for found in _NOT_IN_SOURCE.finditer(source.text):
        code = f"U+{ord(found.group()):04X}"
        problems.add(source.place(found.start()), f"the character {code} is not allowed", hint="remove it")
    if len(problems):
        return source, None
    if source.text.lstrip()[:1] in ("{", "["):
        source = Source(_join_surrogates(source.text))
    try:
        return source, _Builder(source, problems).build()
    except yaml.MarkedYAMLError as error:
        _add_syntax_error(error, problems)
    except yaml.YAMLError as error:
        problems.add(TOP, f"not valid YAML: {error}".splitlines()[0])
    return source, None


def _join_surrogates(text: str) -> str:
    r"""JSON with every pair of \uD83D\uDE00 as the one character YAML can escape."""

    def joined(escape: re.Match[str]) -> str:
        if not escape[1]:
            return escape[0]
        return f"\\U{0x10000 + (int(escape[1], 16) - 0xD800) * 0x400 + int(escape[2], 16) - 0xDC00:08x}"

    return re.sub(r"(?s)\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", joined, text)


def _add_syntax_error(error: yaml.MarkedYAMLError, problems: Problems) -> None:
    mark: Any = error.problem_mark
    words = ": ".join(part for part in (error.context, error.problem) if part)
    hint = None
    if "mapping values are not allowed" in words:
        hint = "a text that holds ': ' must be in quotes"
    elif "cannot start any token" in words:
        hint = "indent with spaces; quote a text that starts with a special character"
    elif "flow mapping" in words:
        hint = "a text that starts with '{' must be in quotes"
    problems.add(Place(mark.line + 1, mark.column + 1) if mark else TOP, f"not valid YAML: {words}", hint=hint)


class _Builder:
    """Builds the tree from events, with a list of open collections in place of recursion."""

    def __init__(self, source: Source, problems: Problems) -> None:
        self._source = source
        self._problems = problems
        self._root: Node | None = None
        self._open: list[_Items | _Entries] = []

    def build(self) -> Node | None:
        events: Iterator[Any] = yaml.parse(self._source.text, Loader=_Loader)
        documents = nodes = 0
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                nodes += 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
            if documents > 1:
                self._problems.add(_start(event), "the file holds more than one document")
                return self._root
            if nodes > MAX_NODES:
                self._problems.add(_start(event), f"more than {MAX_NODES:,} values in one file")
                return None
            if not self._take(event):
                return None
        if self._root is None or (isinstance(self._root, Scalar) and self._root.value is None):
            self._problems.add(TOP, "the file is empty")
            return None
        return self._root

    def _take(self, event: Any) -> bool:
        """Work one event in; False when the document is too deep to go on."""
        if isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event))
        elif isinstance(event, yaml.CollectionStartEvent):
            place = self._refuse_extras(event)
            if len(self._open) == MAX_DEPTH:
                self._problems.add(place, f"nested deeper than {MAX_DEPTH} levels")
                return False
            mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Entries(place, self._problems) if mapping else _Items(place))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._add(self._open.pop().node())
        elif isinstance(event, yaml.AliasEvent):
            place = _start(event)
            self._problems.add(place, f"the alias {quoted(f'*{event.anchor}')} is not allowed", hint="use defaults")
            self._add(Broken(*place))
        return True

    def _add(self, node: Node) -> None:
        if self._open:
            self._open[-1].add(node)
        else:
            self._root = node

    def _refuse_extras(self, event: Any) -> Place:
        place = _start(event)
        if event.anchor is not None:
            self._problems.add(place, f"the anchor {quoted(f'&{event.anchor}')} is not allowed", hint="use defaults")
        if event.tag is not None:
            self._problems.add(place, f"the tag {quoted(event.tag)} is not allowed", hint="remove it")
        return place

    def _scalar(self, event: Any) -> Node:
        line, column = place = self._refuse_extras(event)
        text, start, end = event.value, event.start_mark.index, event.end_mark.index
        if event.style:
            if found := CONTROL.search(text):
                self._problems.add(place, f"the character U+{ord(found.group()):04X} is not allowed in a text")
                return Broken(line, column)
            return Scalar(text, line, column, start, end)
        if event.tag is not None:
            return Broken(line, column)
        value, odd = _read_plain(text)
        if isinstance(value, float) and not math.isfinite(value):
            self._problems.add(
                place, f"{quoted(text)} is not a finite number", hint="write it in quotes if it is a text"
            )
            return Broken(line, column)
        return Scalar(value, line, column, start, end, odd)


def _start(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


class _Items:
    """An open list."""

    def __init__(self, place: Place) -> None:
        self._sequence = Sequence([], *place)

    def add(self, node: Node) -> None:
        self._sequence.items.append(node)

    def node(self) -> Node:
        return self._sequence


class _Entries:
    """An open mapping: takes keys and values in turn. A bad key takes its value with it; the first of two stays."""

    def __init__(self, place: Place, problems: Problems) -> None:
        self._place = place
        self._problems = problems
        self._entries: dict[str, Entry] = {}
        self._key: Node | None = None
        self._is_text = False

    def node(self) -> Node:
        return Broken(*self._place) if self._is_text else Mapping(self._entries, *self._place)

    def add(self, node: Node) -> None:
        if self._key is None:
            self._key = node
            return
        key, self._key = self._key, None
        if not isinstance(key, Scalar):
            self._is_text = True  # most likely an unquoted {{ item }}
            if not isinstance(key, Broken):
                hint = "a text that starts with '{' or '[' must be in quotes"
                self._problems.add(key, "a key must be a text", hint=hint)
        elif key.value == "<<" and key.end - key.start == 2:
            self._problems.add(key, "the merge key '<<' is not allowed", hint="use defaults")
        elif key.value == "":
            self._problems.add(key, "a key must not be empty")
        elif not isinstance(key.value, str) or key.odd:
            reading = key.odd or describe(key)
            self._problems.add(
                key, f"a key must be a text, but this can be read as {reading}", hint="write it in quotes"
            )
        elif (first := self._entries.get(key.value)) is not None:
            lines = f"in line {first.key.line} and again in line {key.line}"
            self._problems.add(key, f"the key {quoted(key.value)} is {lines}", hint="keep one of them")
        else:
            self._entries[key.value] = Entry(key, node)


@functools.lru_cache(maxsize=10_000)
def _read_plain(text: str) -> tuple[str | int | float | bool | None, str | None]:
    """The value of an unquoted text by the core schema of YAML 1.2, and what YAML 1.1 would make of a text."""
    value: str | int | float | bool | None = text
    odd = None
    if text in _WORDS:
        value = _WORDS[text]
    elif len(text) > 100:
        pass  # whatever it is, it is no number that anyone wrote
    elif _NOT_FINITE.fullmatch(text):
        value = math.nan
    elif _INT.fullmatch(text):
        value = int(text)
    elif _LEADING_ZERO.fullmatch(text):
        odd = "a number"
    elif _FLOAT.fullmatch(text):
        value = float(text)
    else:
        tag = _old_yaml.resolve(yaml.ScalarNode, text, (True, False))
        odd = _READINGS.get(tag.rpartition(":")[2])
    return value, odd
