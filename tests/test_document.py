"""Strict YAML: every surprise is an error with its place, and nothing but `Problems` comes of any text."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.document import Invalid, decode, parse
from domain.problems import Problem, Problems, did_you_mean
from domain.tree import Mapping, Node, Scalar, Sequence


def read(text: str) -> tuple[Node | None, list[Problem]]:
    problems = Problems("f")
    _, root = parse(text, problems)
    return root, list(problems.in_order())


def values(node: Node | None) -> object:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [values(item) for item in node.items]
    if isinstance(node, Mapping):
        return {key: values(entry.value) for key, entry in node.entries.items()}
    return node


def test_nodes_know_their_line_and_column() -> None:
    root, problems = read("a: 1\nb:\n  - {é: x, c: [2]}\n")

    assert not problems
    assert isinstance(root, Mapping)
    inner = root.entries["b"].value
    assert isinstance(inner, Sequence)
    first = inner.items[0]
    assert isinstance(first, Mapping)
    assert (first.line, first.column) == (3, 5)
    key, value = first.entries["c"].key, first.entries["c"].value
    assert [(node.line, node.column) for node in (key, value)] == [(3, 12), (3, 15)]


@pytest.mark.parametrize(
    ("plain", "value"),
    [
        ("true", True), ("FALSE", False), ("null", None), ("~", None), ("7", 7), ("-12", -12), ("+3", 3), ("0", 0),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1.", 1.0), ("'true'", "true"), ('"7"', "7"), ("1.2.3", "1.2.3"),
        ("text", "text"), ("-", "-"), ("9" * 101, "9" * 101),
    ],
)  # fmt: skip
def test_plain_scalars_are_read_by_yaml_1_2(plain: str, value: object) -> None:
    root, problems = read(f"[{plain}]" if plain != "-" else "['-']")

    assert not problems
    assert values(root) == [value]
    assert type(values(root)[0]) is type(value)  # type: ignore[index]


@pytest.mark.parametrize(
    ("plain", "reading"),
    [
        ("yes", "true or false"), ("No", "true or false"), ("on", "true or false"), ("OFF", "true or false"),
        ("0123", "a number"), ("0x1f", "a number"), ("0b101", "a number"), ("0o17", "a number"), ("1_000", "a number"),
        ("12:30:00", "a number"), ("1:30.5", "a number"), ("2024-01-01", "a date"), ("2024-01-01 10:00:00", "a date"),
    ],
)  # fmt: skip
def test_what_yaml_1_1_reads_otherwise_is_text_and_remembered(plain: str, reading: str) -> None:
    root, problems = read(f"- {plain}\n- '{plain}'\n- y\n")

    assert not problems
    assert isinstance(root, Sequence)
    odd, quoted, harmless = root.items
    assert isinstance(odd, Scalar)
    assert (odd.value, odd.odd) == (plain, reading)
    assert isinstance(quoted, Scalar)
    assert quoted.odd is None
    assert isinstance(harmless, Scalar)
    assert harmless.odd is None


MISTAKES = [
    ("a: &x 1\n", "1:4", "anchor '&x'", "use defaults"),
    ("a: [*x]\n", "1:5", "alias '*x'", "use defaults"),
    ("a: 1\nb: {<<: 2}\n", "2:5", "merge key", "use defaults"),
    ("a: !!str 1\n", "1:4", "tag", "remove it"),
    ("a: !!python/object/apply:os.system [x]\n", "1:4", "tag", "remove it"),
    ("a: !mine {b: c}\n", "1:4", "tag '!mine'", "remove it"),
    ("a: 1\nb: 2\na: 3\n", "3:1", "the key 'a' is in line 1 and again in line 3", "keep one"),
    ("1: a\n", "1:1", "a key must be a text", "write it in quotes"),
    ("a: 1\nyes: b\n", "2:1", "read as true or false", "write it in quotes"),
    ("null: a\n", "1:1", "a key must be a text", "write it in quotes"),
    ("a: {'': 1}\n", "1:5", "must not be empty", ""),
    ("? [a]\n: b\n", "1:3", "a key must be a text", "quotes"),
    ("a: {{ item }}\n", "1:5", "a key must be a text", "quotes"),
    ("a: .nan\n", "1:4", "not a finite number", "quotes"),
    ("a: -.INF\n", "1:4", "not a finite number", "quotes"),
    ("a: 1e999\n", "1:4", "not a finite number", "quotes"),
    ('{"a": NaN}\n', "1:7", "not a finite number", "quotes"),
    ('{"a": -Infinity}\n', "1:7", "not a finite number", "quotes"),
    ("a: 1\n---\nb: 2\n", "2:1", "more than one document", ""),
    ("", "1:1", "the file is empty", ""),
    ("# only a comment\n", "1:1", "the file is empty", ""),
    ("a: b: c\n", "1:5", "not valid YAML", "': '"),
    ("a:\n\t- b\n", "2:1", "not valid YAML", "spaces"),
    ("a: 'x\n", "2:1", "not valid YAML", ""),
    ("a: [1, 2\n", "2:1", "not valid YAML", ""),
    ("a: x\x00y\n", "1:5", "U+0000", "remove it"),
    ("a: 1\nb: \x1b[31m\n", "2:4", "U+001B", "remove it"),
    ("a: \ud800\n", "1:4", "U+D800", "remove it"),
    ("a: x\ufeff\n", "1:5", "U+FEFF", "remove it"),
    ("a: x\u2028y\n", "1:5", "U+2028", "remove it"),
    ('a: "\\0"\n', "1:4", "U+0000", ""),
    ('a: "\\e[0m"\n', "1:4", "U+001B", ""),
    ('{"a": "\\ud800"}\n', "1:10", "not valid YAML", ""),
    ("[" * 3_000, "1:21", "deeper than 20", ""),
    ("- " * 3_000, "1:41", "deeper than 20", ""),
    ("x" * 5_000_001, "1:1", "larger than 5 MB", ""),
    ("é" * 2_500_001, "1:1", "larger than 5 MB", ""),
    ("[" + "a," * 500_000 + "]", "1:1000000", "more than 500,000 values", ""),
]


@pytest.mark.parametrize(("text", "place", "words", "hint"), MISTAKES, ids=[text[:20] for text, *_ in MISTAKES])
def test_a_mistake_is_told_with_its_place(text: str, place: str, words: str, hint: str) -> None:
    _, problems = read(text)

    assert [f"{problem.line}:{problem.column}" for problem in problems] == [place]
    assert words in problems[0].message
    assert hint in (problems[0].hint or "")


def test_all_mistakes_are_told_at_once_in_order() -> None:
    _, problems = read("a: &x 1\nb: *x\na: !!int 2\n3: .inf\n")

    assert [(problem.line, problem.column) for problem in problems] == [(1, 4), (2, 4), (3, 1), (3, 4), (4, 1), (4, 4)]


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    """324 bytes that would become gigabytes: only the text itself is ever held."""
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    bomb += "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )

    tracemalloc.start()
    _, problems = read(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(problems) == 9 + 8 * 9
    assert peak < 5_000_000


def test_a_recursive_alias_is_refused() -> None:
    _, problems = read("a: &a [*a]\n")

    assert [problem.column for problem in problems] == [4, 8]


def test_a_leading_byte_order_mark_is_not_part_of_the_text() -> None:
    root, problems = read("\ufeffa: 1\n")

    assert not problems
    assert values(root) == {"a": 1}
    assert isinstance(root, Mapping)
    assert root.entries["a"].key.column == 1


def test_windows_line_ends_count_as_one() -> None:
    root, problems = read("a: 1\r\nb: |\r\n  x\r\n  y\r\n")

    assert not problems
    assert values(root) == {"a": 1, "b": "x\ny\n"}


def test_surrogate_pairs_of_json_are_one_character() -> None:
    """json.dumps escapes an emoji as two halves, which YAML alone does not know."""
    text = json.dumps({"a": "😀", "b": r"\ud83d\ude00"})
    assert "\\ud83d" in text

    root, problems = read(text)

    assert not problems
    assert values(root) == {"a": "😀", "b": r"\ud83d\ude00"}


def test_past_a_thousand_mistakes_are_counted() -> None:
    _, problems = read("[" + "*a, " * 1_500 + "]")

    assert len(problems) == 1_001
    assert problems[-1].message == "and 500 more mistakes"


def test_marks_are_found_in_every_style_of_text() -> None:
    text = "a: |\n  one\n  {{ x }} {{\nb: \"é {{ z }}\"\nc: >- # {{ no\n  {{ q }}\nd: 'it''s {{'\ne: 😀 {{\n"
    problems = Problems("f")
    source, root = parse(text, problems)

    assert isinstance(root, Mapping)
    scalars = [entry.value for entry in root.entries.values()]
    places = [tuple(place) for scalar in scalars if isinstance(scalar, Scalar) for place in scalar.places(source, "{{")]
    assert places == [(3, 3), (3, 11), (4, 7), (6, 3), (7, 11), (8, 6)]


def test_a_file_that_is_not_utf_8_is_told_by_its_first_wrong_byte() -> None:
    with pytest.raises(Invalid) as caught:
        decode(b"a: 1\nb: caf\xe9\n", "p.yaml")

    assert str(caught.value) == "p.yaml:2:7: the file is not UTF-8 text (save it as UTF-8)"
    assert decode("é".encode(), "p.yaml") == "é"


def test_a_problem_is_one_line() -> None:
    problem = Problem("p.yaml", 3, 7, "scan", "is wrong", "mend it")

    assert str(problem) == "p.yaml:3:7: task 'scan': is wrong (mend it)"
    assert str(Problem("-", 1, 1, None, "is wrong")) == "-:1:1: is wrong"


def test_hints_ignore_case_and_what_is_far() -> None:
    assert did_you_mean("Reserch", ["research", "writing"]) == "did you mean 'research'?"
    assert did_you_mean("zebra", ["research", "writing"]) is None
    assert did_you_mean("x" * 5_000, ["x" * 5_000]) is None


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_tree_or_problems(text: str) -> None:
    root, problems = read(text)

    assert (root is not None) or problems
    assert all(problem.line >= 1 and problem.column >= 1 and "\n" not in str(problem) for problem in problems)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(categories=["L"]), min_size=1), inner),
    max_leaves=15,
)  # fmt: skip


@given(st.lists(JSON, min_size=1))
@settings(max_examples=200, deadline=None)
def test_json_is_a_subset(value: list[object]) -> None:
    root, problems = read(json.dumps(value))

    assert not problems
    assert values(root) == value
