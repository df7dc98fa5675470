"""The documentation tells the truth: its commands are run, its links lead somewhere, its options exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from home import Home
from pages import ROOT, Command, Page
from typer.core import TyperGroup
from typer.main import get_command

from embedded import simulator_url
from runtime import REGION_VARIABLE, Settings, load_settings
from sealing import VARIABLES
from terminal.commands import app

PAGES = [Page(file) for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
OTHERS = [Page(file) for file in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs" / "decisions").glob("*.md")))]
EVERY = [*PAGES, *(page for page in OTHERS if page not in PAGES)]
WITH_COMMANDS = [page for page in PAGES if any(fence.commands for fence in page.fences)]

NOT_RUN = {
    "make demo": "it is run by tests/test_isolation.py",
    "make test": "it is what runs this",
    "make check": "it is run beside the tests, by .ci/run",
    "make install": "the tests run in what it makes",
    "docker ": "there is no Docker where the tests run; tests look into its files instead",
    "git clone": "it needs a network",
    "crontab": "it changes the machine",
    "sudo ": "it changes the machine",
    "./starter.py --install-completion": "it changes the start-up files of a shell",
}
"""Commands of the pages that are not run here, each with the reason. Any other line is run, or is a mistake."""

RUN = re.compile(r"\./starter\.py |export OTEL_\w+=")
"""What is typed. Of exports only those of telemetry: a key or an address of Temporal would be used."""

WAIT_FOR_THE_END = {"run", "watch", "result", "events"}
FAST = {"ttft": 0, "tokens_per_second": 0}
SLOW = {"ttft": 20, "tokens_per_second": 0}
"""After a submit, so that what a page does to an open run finds it open. Whoever waits for the end finds it fast."""


@dataclass
class Reader:
    """Somebody who reads a page and types what stands there, in a folder like the repository, at a home of its own."""

    folder: Path
    home: Home
    exported: dict[str, str] = field(default_factory=dict)
    last_words: str = ""

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def type(self, command: Command) -> str | None:
        """What was not as the page says, if anything."""
        if command.text.startswith("export "):
            name, _, value = shlex.split(command.text, comments=True)[1].partition("=")
            self.exported[name] = value
            return None
        self._set_the_pace(command.text)
        environment = {**os.environ, **self.exported, "NIGHTCREW_HOME": str(self.home.folder)}
        done = subprocess.run(
            ["bash", "-c", command.text],  # noqa: S607
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.last_words = done.stdout + done.stderr
        if done.returncode == command.exit and "Traceback" not in done.stderr:
            return None
        said = "\n".join(self.last_words.strip().splitlines()[-8:])
        return f"line {command.line}: {command.text}\nexit code {done.returncode}, not {command.exit}:\n{said}"

    def _set_the_pace(self, text: str) -> None:
        if simulator_url(load_settings(self.home.folder)) is None:
            return
        if "starter.py submit" in text:
            self.home.script(**SLOW)
        elif set(text.split()) & WAIT_FOR_THE_END:
            self.home.script(**FAST)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """In front of a home that is up; what is written there is not written into the repository."""
    folder, home = tmp_path / "nightcrew", Home(tmp_path / "home")
    folder.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith((".nightcrew", ".git")):
            (folder / entry.name).symlink_to(entry)
    assert home("up").returncode == 0
    try:
        yield Reader(folder, home)
    finally:
        assert home("down").returncode == 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_every_command_of_a_page_ends_as_the_page_says(reader: Reader, page: Page) -> None:
    """In the order of the page, with its plans as the files they are called, and the output that is shown."""
    wrong: list[str] = []
    assert set(os.environ) & {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "TEMPORAL_ADDRESS"} == set()

    for fence in page.fences:
        if fence.file is not None:
            reader.write(fence.file, fence.text)
        for command in fence.commands:
            if RUN.match(command.text) and not _not_run(command):
                wrong += [said] if (said := reader.type(command)) else []
        if fence.language == "output":
            wrong += [f"not said: {line}" for line in fence.text.splitlines() if line not in reader.last_words]

    assert not wrong, f"{page.name}:\n" + "\n\n".join(wrong)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_no_command_of_a_page_is_passed_over_in_silence(page: Page) -> None:
    commands = [command for fence in page.fences for command in fence.commands]

    unknown = [f"line {c.line}: {c.text}" for c in commands if not (RUN.match(c.text) or _not_run(c))]

    assert unknown == [], f"{page.name}: neither run nor in NOT_RUN"


def test_what_is_said_to_be_run_elsewhere_is() -> None:
    assert '["make", "demo"]' in (ROOT / "tests" / "test_isolation.py").read_text()
    assert "make check" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_link_and_picture_leads_somewhere(page: Page) -> None:
    lost = [
        f"{target}#{anchor or ''}"
        for target, anchor in page.links()
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in Page(target).anchors())
    ]

    assert lost == []


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_command_and_option_that_is_mentioned_exists(page: Page) -> None:
    """Also within a sentence, where nobody runs it."""
    unknown = [f"{words}: {what}" for words in page.code() for what in _unknown(words)]

    assert unknown == []


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_setting_that_is_mentioned_exists(page: Page) -> None:
    known = {f"NIGHTCREW_{key.upper()}" for key in Settings.model_fields} | {*VARIABLES, REGION_VARIABLE}
    assert set(re.findall(r"NIGHTCREW_[A-Z_]*[A-Z]", page.text)) - known == set()


def test_every_command_is_in_the_readme() -> None:
    """And every setting."""
    readme = Page(ROOT / "README.md")
    words = {word.strip(",`") for word in readme.text.split()}

    assert set(_tree().commands) - words == set()
    assert {f"NIGHTCREW_{key.upper()}" for key in Settings.model_fields} - words == set()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("./starter.py run PLAN --simulate", 0),
        ("./starter.py --home DIR validate PLAN --brief TASK", 0),
        ("result RUN TASK --text", 0),
        ("./starter.py COMMAND --help", 0),
        ("make install", 0),
        ("./starter.py fly PLAN", 1),
        ("./starter.py run PLAN --fast", 1),
        ("result RUN --loud", 1),
        ("./starter.py --quiet run PLAN", 1),
        ("./starter.py audit verify RUN --json", 0),
        ("./starter.py audit verify RUN --format csv", 1),
    ],
)
def test_what_does_not_exist_is_found(words: str, wrong: int) -> None:
    assert len(_unknown(words)) == wrong


def _not_run(command: Command) -> bool:
    return any(command.text.startswith(beginning) for beginning in NOT_RUN)


@cache
def _tree() -> TyperGroup:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def _options(command: Any, rest: list[str]) -> set[str]:
    """The options of a command; of a group those of the command in it that follows, and of all where none does."""
    own = {option for param in command.params for option in param.opts}
    if not isinstance(command, TyperGroup):
        return own
    named = [command.commands[word] for word in rest[:1] if word in command.commands]
    return own.union(*(_options(each, rest[1:]) for each in named or command.commands.values()))


def _unknown(words: str) -> list[str]:
    """Commands and options that a mention of the command line names and that do not exist."""
    tree = _tree()
    called = words.partition("./starter.py")[2] if "./starter.py" in words else words
    try:
        parts = shlex.split(called, comments=True)
    except ValueError:
        return []  # not a command line
    if "./starter.py" not in words and not (parts and parts[0] in tree.commands and "--" in words):
        return []
    general = {"--help", "-h", *(option for param in tree.params for option in param.opts)}
    known, command, wrong = general, None, list[str]()
    for place, part in enumerate(parts):
        if part in ("|", ">", "<", "&&", ";"):
            break
        if part.startswith("-") and part != "-":
            option = part.partition("=")[0].rstrip(",;.:")
            wrong += [option] if option not in known else []
        elif command is None and parts[place - 1 : place] != ["--home"]:
            command = part.rstrip(",;.:)")
            if command in tree.commands:
                known = general | _options(tree.commands[command], parts[place + 1 :])
            elif command.islower() and command.isalpha():
                wrong.append(command)
            else:
                break  # COMMAND, ...: any of them
    return wrong
