"""What there is to begin with: a first plan, the agents, the schemas. Nothing is started."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from domain.durations import written
from domain.models import Agent
from domain.problems import did_you_mean
from domain.schemas import SCHEMAS, json_schema
from terminal.outcome import Exit, Refusal, print_json
from terminal.plans import read_registry
from terminal.text import plain

FIRST_PLAN = Path(__file__).with_name("first-plan.yaml")


def write_first_plan(file: Path, *, as_json: bool) -> Exit:
    """A commented plan that runs as it is. A file that exists is never overwritten."""
    text = FIRST_PLAN.read_text("utf-8").replace("FILE ", f"{plain(str(file))} ")
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        message = f"{file} exists, and was left as it is. Name another file: ./starter.py init FILE."
        raise Refusal(message, code="exists", exit=Exit.WRONG) from None
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}. Name another file: ./starter.py init FILE."
        raise Refusal(message, code="unwritable", exit=Exit.CANNOT) from None
    if as_json:
        print_json({"schema": "nightcrew.init/1", "file": str(file)})
    else:
        sys.stdout.write(f"{file}\n")
        sys.stderr.write(f"A plan of three tasks. Run it with ./starter.py run {file}\n")
    return Exit.DONE


def show_agents(file: Path | None, *, as_json: bool) -> Exit:
    """The agents of agents.yaml: name, version, capabilities, model, limits."""
    agents = read_registry(file).agents
    if as_json:
        print_json({"schema": "nightcrew.agents/1", "agents": [_document(agent) for agent in agents]})
        return Exit.DONE
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in "agent", "can", "model", "limits":
        table.add_column(heading, overflow="fold")
    for agent in agents:
        table.add_row(
            Text(plain(agent.label)),
            Text(plain(", ".join(agent.capabilities))),
            Text(plain(agent.model), "dim"),
            Text(", ".join(_limits(agent)), "dim"),
        )
    console.print(table)
    return Exit.DONE


def show_schema(name: str) -> Exit:
    """The JSON Schema of a plan, of agents.yaml, of a report or of an event. It is JSON in any case."""
    if name not in SCHEMAS:
        hint = did_you_mean(name, list(SCHEMAS)) or f"There are {', '.join(SCHEMAS)}"
        raise Refusal(f"There is no schema {name!r}. {hint}.", code="usage", exit=Exit.WRONG)
    print_json(json_schema(name))
    return Exit.DONE


def _limits(agent: Agent) -> list[str]:
    limits = [f"{agent.max_concurrency} at once"] if agent.max_concurrency else []
    limits += [f"timeout {written(agent.timeout)}"] if agent.timeout else []
    limits += [f"{agent.attempts} attempts"] if agent.attempts else []
    return limits + ([f"{agent.max_tokens:,} tokens"] if agent.max_tokens else [])


def _document(agent: Agent) -> dict[str, object]:
    timeout = agent.timeout.total_seconds() if agent.timeout else None
    described = agent.model_dump(mode="json", exclude={"timeout", "instructions"})
    return {**described, "timeout_s": timeout, "instructions": agent.instructions}
