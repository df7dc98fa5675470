"""What a keeper tells of the services it keeps, in `services/keeper-MODE.state.json`, and in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from private_files import read_text, write_private
from restarts import PROVEN


class Account(BaseModel):
    """What a keeper has seen of one service. Crashes are those since it last ran well, restarts are all."""

    restarts: int = 0
    crashes: int = 0
    crash_loop: bool = False
    last_crash: datetime | None = None
    next_try: datetime | None = None
    last_words: str = ""
    log: Path


class Told(BaseModel):
    """The state file of a keeper. It outlives its keeper: the pid says whose it is."""

    pid: int
    services: dict[str, Account]

    def write(self, file: Path) -> None:
        """Replace what was told before."""
        write_private(file, self.model_dump_json(indent=2) + "\n")


def told_by(file: Path, pid: int) -> dict[str, Account]:
    """What the keeper with this pid has told so far."""
    try:
        told = Told.model_validate_json(read_text(file))
    except ValidationError:
        return {}
    return told.services if told.pid == pid else {}


@dataclass(frozen=True)
class Trouble:
    """A service that a keeper keeps and that is down, or that goes up and down."""

    service: str
    up: bool
    waits_for: str | None
    """Another service that must be up before."""
    account: Account

    def sentence(self, starter: str) -> str:
        """What is wrong, what happens about it, and what a person can do; the same words until something changes."""
        who, told = f"The {self.service} of this home", self.account
        if self.waits_for is not None:
            return f"{who} is down; it is started again as soon as the {self.waits_for} is up."
        if told.crashes <= 1:
            return f"{who} died and is being started again; its log is {told.log}."
        tries = f"the next try is at {told.next_try.astimezone():%H:%M:%S}" if told.next_try else "it is being tried"
        now = "it is up at the moment" if self.up else tries
        if not told.crash_loop:
            return f"{who} died {told.crashes} times in a row; {now}. See {told.log}; `{starter} up` tries at once."
        said = f" It ends with: {told.last_words}" if told.last_words else ""
        return (
            f"{who} is in a crash loop: {told.crashes} crashes without {PROVEN / 60:.0f} minutes of work in between; "
            f"{now}. Mend what its log {told.log} tells; `{starter} up` tries at once.{said}"
        )
