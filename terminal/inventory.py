"""What there is to begin with: a first plan, and the schemas. Nothing is started."""

from __future__ import annotations

import sys
from pathlib import Path

from domain.problems import did_you_mean
from domain.schemas import SCHEMAS, json_schema
from terminal.outcome import Exit, Refusal, print_json
from terminal.text import plain

FIRST_PLAN = Path(__file__).with_name("first-plan.yaml")


def write_first_plan(file: Path, starter: str, *, as_json: bool) -> Exit:
    """A commented plan that runs as it is. A file that exists is never overwritten."""
    text = FIRST_PLAN.read_text("utf-8").replace("FILE ", f"{plain(str(file))} ")
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        message = f"{file} exists, and was left as it is. Name another file: {starter} init FILE."
        raise Refusal(message, code="exists", exit=Exit.WRONG) from None
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}. Name another file: {starter} init FILE."
        raise Refusal(message, code="unwritable", exit=Exit.CANNOT) from None
    if as_json:
        print_json({"schema": "nightcrew.init/1", "file": str(file)})
    else:
        sys.stdout.write(f"{file}\n")
        sys.stderr.write(f"A plan of three tasks. Run it with {starter} run {file}\n")
    return Exit.DONE


def show_schema(name: str) -> Exit:
    """The JSON Schema of a plan, of agents.yaml, of a report or of an event. It is JSON in any case."""
    if name not in SCHEMAS:
        hint = did_you_mean(name, list(SCHEMAS)) or f"There are {', '.join(SCHEMAS)}"
        raise Refusal(f"There is no schema {name!r}. {hint}.", code="usage", exit=Exit.WRONG)
    print_json(json_schema(name))
    return Exit.DONE
