"""Playbooks: those of a home and the shipped ones, by name."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from domain.planning import Invalid
from domain.planning.playbooks import playbook_from_text
from domain.playbook import Playbook
from domain.problems import did_you_mean
from runtime import ROOT, Settings
from terminal.outcome import Exit, Refusal, ended, print_json
from terminal.text import plain

FOLDER = "playbooks"
MAX_BYTES = 1_000_000
"""A file in the folder that is larger is none of ours."""


def files(settings: Settings) -> dict[str, Path]:
    """Every playbook by its name: one of the home goes before a shipped one."""
    folders = (ROOT / FOLDER, settings.home / FOLDER)
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml"))}


def file_of(settings: Settings, name: str) -> Path:
    """The file of a playbook; a refusal when there is none of this name."""
    known = files(settings)
    if name not in known:
        hint = did_you_mean(name, known) or f"there are {', '.join(known) or 'none'}"
        message = f"There is no playbook {name!r}. {ended(hint[0].upper() + hint[1:])}"
        raise Refusal(message, code="unknown_playbook", exit=Exit.WRONG)
    return known[name]


def shown(file: Path) -> str:
    """What a mistake calls the file."""
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else str(file)


def read_all(settings: Settings) -> tuple[Playbook, ...]:
    """All of them, by name; a refusal with the mistakes of the first that is none."""
    return tuple(_read(name, file) for name, file in sorted(files(settings).items()))


def show(settings: Settings, starter: str, *, as_json: bool) -> Exit:
    """Which playbooks there are, when each applies, and what it must be told."""
    playbooks = read_all(settings)
    if as_json:
        found = [playbook.model_dump(mode="json", exclude={"text"}) for playbook in playbooks]
        print_json({"schema": "nightcrew.playbooks/1", "playbooks": found})
        return Exit.DONE
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for playbook in playbooks:
        console.print(plain(playbook.name), style="bold")
        console.print(f"  {plain(playbook.when)}")
        for param in playbook.params:
            default = f" (default: {plain(param.default)})" if param.default is not None else ""
            console.print(f"  --param {plain(param.name)}=...  {plain(param.about or '')}{default}")
    console.print(f"\n{starter} run --playbook NAME --param NAME=VALUE")
    return Exit.DONE


def _read(name: str, file: Path) -> Playbook:
    try:
        text = file.read_text("utf-8") if file.stat().st_size <= MAX_BYTES else ""
        playbook = playbook_from_text(text, file=shown(file))
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{shown(file)} cannot be read: {error}.", code="unreadable", exit=Exit.WRONG) from None
    except Invalid as invalid:
        message = f"The playbook {name!r} cannot be used."
        raise Refusal(message, code="invalid_plan", exit=Exit.WRONG, problems=invalid.problems) from None
    return playbook.model_copy(update={"name": name})
