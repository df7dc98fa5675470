"""A plan reads files of its own folder and no others, whatever it writes."""

# ruff: noqa: E501  (a corpus reads best in full lines)

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import folder as folder_module
from domain.planning import Folder, FolderError, plan_from_text
from domain.registry import registry_from_text
from folder import PlanFolder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A plan's folder beside a secret, with links of every kind."""
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("SECRET")
    (tmp_path / "plan-evil").mkdir()
    (tmp_path / "plan-evil" / "secret.txt").write_text("SECRET")
    root = tmp_path / "plan"
    (root / "notes" / "deep" / "er").mkdir(parents=True)
    (root / ".hidden").mkdir()
    for path in (
        "a.md",
        "b.md",
        ".env",
        "notes/c.md",
        "notes/d.txt",
        "notes/.e.md",
        "notes/deep/f.md",
        "notes/deep/er/g.md",
    ):
        (root / path).write_text(path)
    (root / ".hidden" / "h.md").write_text("h")
    (root / "odd[1].md").write_text("odd")
    (root / "out-file").symlink_to(tmp_path / "secret.txt")
    (root / "out-folder").symlink_to(tmp_path / "outside")
    (root / "out-relative").symlink_to("../secret.txt")
    (root / "out-chain").symlink_to("out-file")
    (root / "out-up").symlink_to("..")
    (root / "out-sibling").symlink_to("../plan-evil")
    (root / "out-device").symlink_to("/dev/zero")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere")
    (root / "links").mkdir()
    (root / "links" / "in-file").symlink_to("../a.md")
    (root / "links" / "in-folder").symlink_to("../notes")
    (root / "links" / "back").symlink_to(".")
    os.mkfifo(root / "pipe")
    return root


OUTSIDE = [
    "../secret.txt", "..", "../", "../..", "notes/../../secret.txt", "notes/..", "./../secret.txt", "../plan-evil/secret.txt",
    "notes/deep/../../../secret.txt", ".//..//secret.txt", "../*", "*/../../secret.txt", "**/../secret.txt", "../plan/a.md",
    "/", "/etc/passwd", "//etc/passwd", "///etc/passwd", "/*", "/etc/*", "/proc/self/environ", "/dev/zero",
    "~", "~/x", "~root/.ssh/id_rsa", "~/.ssh/*",
    "a.md\x00", "\x00", "a.md\x00.txt", "a\n.md", "a\r.md", "\x1b[31ma", "a\u202e.md", "a\u200b.md", "\ud800", "\x7f",
    "C:\\secret.txt", "C:/secret.txt", "c:secret.txt", "\\\\host\\share", "..\\secret.txt", "notes\\c.md", "\\secret.txt",
    "out-file", "out-relative", "out-chain", "out-folder", "out-folder/secret.txt", "out-folder/*", "out-folder/**",
    "out-up/secret.txt", "out-up/*", "out-sibling/secret.txt", "out-device", "out-*", "o*/secret.txt",
    "*/secret.txt", "loop", "loop/x", "dangling", "", " ", "\t", "x" * 1_001, "x" * 300, "nope", "nope/a.md", "a.md/x",
    "notes", "notes/", ".", "./", "pipe", "file:///etc/passwd", "%2e%2e/secret.txt", "notes/%2e%2e/x",
]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE, ids=[ascii(path)[:40] for path in OUTSIDE])
def test_no_path_reads_outside_or_anything_but_a_file(root: Path, path: str) -> None:
    with pytest.raises(FolderError) as read:
        PlanFolder(root).read(path)
    with pytest.raises(FolderError) as matched:
        PlanFolder(root).match(path)

    for message in (str(read.value), str(matched.value)):
        assert message.isprintable()
        assert "SECRET" not in message


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.md", ["a.md"]),
        ("./a.md", ["a.md"]),
        ("notes//c.md", ["notes/c.md"]),
        ("*.md", ["a.md", "b.md", "odd[1].md"]),
        ("[ab].md", ["a.md", "b.md"]),
        ("?.md", ["a.md", "b.md"]),
        ("notes/*", ["notes/c.md", "notes/d.txt"]),
        ("notes/*.md", ["notes/c.md"]),
        ("n*/deep/*", ["notes/deep/f.md"]),
        ("notes/**/*.md", ["notes/c.md", "notes/deep/er/g.md", "notes/deep/f.md"]),
        ("notes/**", ["notes/c.md", "notes/d.txt", "notes/deep/er/g.md", "notes/deep/f.md"]),
        ("**/g.md", ["notes/deep/er/g.md"]),
        ("**/**/g.md", ["notes/deep/er/g.md"]),
        (".env", [".env"]),
        (".e*", [".env"]),
        ("notes/.*", ["notes/.e.md"]),
        (".hidden/*", [".hidden/h.md"]),
        ("[!o]*/h.md", []),
        ("odd[1].md", ["odd[1].md"]),
        ("*.nope", []),
        ("NOTES/*", []),
        ("links/in-file", ["links/in-file"]),
        ("links/in-folder/*", ["links/in-folder/c.md", "links/in-folder/d.txt"]),
        ("links/back/in-f*", ["links/back/in-file"]),
        ("p*", []),
        ("[dl]*", []),
        ("out-up/plan/a.md", ["out-up/plan/a.md"]),  # a way out that leads back in
    ],
)
def test_patterns_find_the_files_of_the_folder(root: Path, pattern: str, found: list[str]) -> None:
    assert PlanFolder(root).match(pattern) == found


def test_what_matches_can_be_read(root: Path) -> None:
    plan_folder: Folder = PlanFolder(root)

    assert plan_folder.read("notes/c.md") == b"notes/c.md"
    assert plan_folder.read("links/in-file") == b"a.md"
    assert plan_folder.read("links/in-folder/c.md") == b"notes/c.md"
    assert plan_folder.read("odd[1].md") == b"odd"


def test_messages_name_the_path_and_the_remedy(root: Path) -> None:
    def message(path: str) -> str:
        with pytest.raises(FolderError) as caught:
            PlanFolder(root).match(path)
        return str(caught.value)

    assert message("notes") == "'notes' is a folder; name its files, as in 'notes/*'"
    assert message("../x") == "'../x' must not hold '..'"
    assert message("/x") == "'/x' must be relative to the plan's folder"
    assert message("out-file") == "'out-file' leads out of the plan's folder"
    assert message("pipe") == "'pipe' is not a regular file"
    assert message("nope") == f"there is no file 'nope' in {str(root)!r}"


def test_a_large_file_is_refused_without_being_read_whole(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(FolderError, match="larger than 5 MB"):
        PlanFolder(root).read("sparse")


@pytest.fixture
def unix_socket(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        yield


@pytest.mark.usefixtures("unix_socket")
def test_a_socket_is_not_a_file(root: Path) -> None:
    with pytest.raises(FolderError):
        PlanFolder(root).read("sock")
    assert PlanFolder(root).match("soc*") == []


def test_a_name_that_cannot_be_shown_is_refused_when_it_matches(root: Path) -> None:
    (root / "notes" / "a\x1b[31m.log").write_text("x")

    assert PlanFolder(root).match("notes/*.md") == ["notes/c.md"]
    with pytest.raises(FolderError, match="unprintable"):
        PlanFolder(root).match("notes/*.log")


def test_a_pattern_stops_when_it_looks_at_too_much(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_VISITED", 5)

    with pytest.raises(FolderError, match="more than 5 files"):
        PlanFolder(root).match("**/*.md")


def test_the_folder_is_that_of_the_plan_or_the_current_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "notes")

    assert PlanFolder.of("-").match("c.md") == ["c.md"]
    assert PlanFolder.of("../plan.yaml").match("a.md") == ["a.md"]
    assert PlanFolder.of(str(root / "plan.yaml")).root == root


def test_a_plan_reads_its_files_through_the_folder(root: Path) -> None:
    registry = registry_from_text('agents: [{name: a, version: "1", model: m, instructions: x}]', file="agents.yaml")
    text = "tasks: [{id: t, agent: a, for_each: {files: '*.md'}, prompt: '{{ item }}', files: [notes/*.md]}]"

    (root / "odd[1].md").unlink()
    planned = plan_from_text(text, file="p", registry=registry, folder=PlanFolder(root))

    assert [[file.path for file in task.files] for task in planned.plan.tasks] == [
        ["a.md", "notes/c.md"],
        ["b.md", "notes/c.md"],
    ]
    assert set(planned.contents.values()) == {b"a.md", b"b.md", b"notes/c.md"}
