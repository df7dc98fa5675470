"""The commands of `starter.py` and their words. Heavy imports are inside: `--help` must answer at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from terminal.outcome import Exit, Refusal, show_refusal

app = typer.Typer(
    help="Hand over a plan of agent tasks in the evening, read a truthful report in the morning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Home = Annotated[Path | None, typer.Option("--home", metavar="DIR", help="The home folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
RunWords = Annotated[str, typer.Argument(metavar="RUN", help="An id, a unique prefix, or 'latest'.")]
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file, or - for standard input.")]
TaskId = Annotated[str | None, typer.Argument(metavar="[TASK]", help="One task of it.")]
Params = Annotated[list[str] | None, typer.Option("--param", metavar="K=V", help="A parameter of the plan.")]
Agents = Annotated[Path | None, typer.Option("--agents", metavar="FILE", help="Another agents.yaml.")]
Concurrency = Annotated[int | None, typer.Option("--max-concurrency", metavar="N", help="Tasks at work at once.")]
Simulate = Annotated[bool, typer.Option("--simulate", help="Use the simulator even when there are credentials.")]
Limit = Annotated[str | None, typer.Option("--timeout", metavar="30m", help="Stop waiting, not the run.")]


class Said:
    """What was said before the command: it holds for every command."""

    home: Path | None = None
    json = False
    debug = False


@app.callback()
def before(home: Home = None, json: Json = False, debug: Debug = False) -> None:  # noqa: D103
    Said.home, Said.json, Said.debug = home, json, debug


@app.command("run", rich_help_panel="Start")
def run_command(
    plan: PlanFile,
    id: Annotated[str | None, typer.Option("--id", help="The run's id. Same id, same plan: same run.")] = None,
    simulate: Simulate = False,
    max_concurrency: Concurrency = None,
    param: Params = None,
    agents: Agents = None,
    timeout: Limit = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Start a plan, watch it, print its report; the exit code tells the outcome."""
    _hear(home, json)
    from terminal import plans, running

    planned = plans.read_plan(plan, params=param or [], agents=agents, max_concurrency=max_concurrency)
    limit = _limit(timeout)
    return _do(running.run_plan(_session(), planned, id=id, simulate=simulate, limit=limit, as_json=Said.json))


@app.command(rich_help_panel="Start")
def validate(
    plan: PlanFile,
    resolved: Annotated[bool, typer.Option("--resolved", help="Every effective value and its source.")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="What can run side by side.")] = False,
    brief: Annotated[str | None, typer.Option("--brief", metavar="TASK", help="What its agent would be told.")] = None,
    max_concurrency: Concurrency = None,
    param: Params = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Check a plan: every mistake at once. Nothing is started."""
    _hear(home, json)
    from terminal import plans

    planned = plans.read_plan(plan, params=param or [], agents=agents, max_concurrency=max_concurrency)
    plans.show_plan(planned, resolved=resolved, graph=graph, brief=brief, as_json=Said.json)
    return Exit.DONE


@app.command(rich_help_panel="Look")
def status(run: RunWords, task: TaskId = None, home: Home = None, json: Json = False) -> int:
    """One picture of a run now, or of one of its tasks."""
    _hear(home, json)
    from terminal import running

    return _do(running.status(_session(), run, task, as_json=Said.json))


@app.command(rich_help_panel="Look")
def result(
    run: RunWords,
    task: TaskId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end.")] = False,
    timeout: Limit = None,
    text: Annotated[bool, typer.Option("--text", help="Only the text: the final one, or the task's.")] = False,
    save: Annotated[Path | None, typer.Option("--save", metavar="DIR", help="Write one file per task.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """The report of a run; the exit code tells the outcome."""
    _hear(home, json)
    from terminal import running

    limit = _limit(timeout)
    return _do(running.result(_session(), run, task, wait=wait, limit=limit, text=text, save=save, as_json=Said.json))


@app.command(rich_help_panel="Look")
def events(
    run: RunWords,
    type: Annotated[str | None, typer.Option("--type", help="Only events of this type.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME|2h", help="Only later ones.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has ended.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """What happened in a run, in order."""
    _hear(home, json)
    from terminal import running

    return _do(running.events(_session(), run, type=type, since=_since(since), follow=follow, as_json=Said.json))


@app.command("open", rich_help_panel="Look")
def open_command(run: RunWords, home: Home = None, json: Json = False) -> int:
    """The run's address in the Temporal Web UI; starts this home's server if needed."""
    _hear(home, json)
    from terminal import running

    return _do(running.open_run(_session(), run, as_json=Said.json))


@app.command(rich_help_panel="Steer")
def cancel(run: RunWords, home: Home = None, json: Json = False) -> int:
    """End a run: calls are cut, what has finished is kept."""
    return _steer("cancel", run, home, as_json=json)


@app.command(rich_help_panel="Steer")
def pause(run: RunWords, home: Home = None, json: Json = False) -> int:
    """Start nothing new; calls at work finish."""
    return _steer("pause", run, home, as_json=json)


@app.command(rich_help_panel="Steer")
def resume(run: RunWords, home: Home = None, json: Json = False) -> int:
    """Go on after a pause."""
    return _steer("resume", run, home, as_json=json)


@app.command(rich_help_panel="Home")
def up(simulate: Simulate = False, home: Home = None, json: Json = False) -> int:
    """Start server, worker and simulator of this home in the background."""
    _hear(home, json)
    from terminal import running

    return _do(running.up(_session(), simulate=simulate, as_json=Said.json))


@app.command(rich_help_panel="Home")
def down(home: Home = None, json: Json = False) -> int:
    """Stop them. Open runs wait for the next up."""
    _hear(home, json)
    from terminal import running

    return _do(running.down(_session(), as_json=Said.json))


def main(arguments: list[str]) -> int:
    """Carry out one command; the exit code. A person sees a paragraph, never a traceback."""
    from runtime import private_umask

    private_umask()
    if "--debug" not in arguments:
        logging.getLogger("temporalio").setLevel(logging.CRITICAL)  # what matters of it is told in our own words
    try:
        return int(app(arguments, standalone_mode=False) or 0)
    except Refusal as refusal:
        return show_refusal(refusal, as_json=Said.json)
    except TyperException as error:
        message = f"{error.format_message().rstrip('.')}. ./starter.py --help shows what there is."
        return show_refusal(Refusal(message, code="usage", exit=Exit.WRONG), as_json="--json" in arguments)
    except BrokenPipeError:
        return Exit.CANNOT  # whoever read us has gone, as `head` does: there is nobody to tell
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except Exception as error:
        if Said.debug:
            raise
        return show_refusal(_refusal_of(error), as_json=Said.json)


def _refusal_of(error: Exception) -> Refusal:
    """What an error of ours, or one that we did not foresee, means for a person."""
    from temporalio.service import RPCError

    from client import OtherPlan, SteeringRefused, UnknownRun
    from payloads import PayloadTooLarge
    from runtime import CannotDo
    from store import StoreError

    match error:
        case UnknownRun() | OtherPlan():
            return Refusal(f"{str(error)[0].upper()}{str(error)[1:]}.", code="unknown_run", exit=Exit.WRONG)
        case PayloadTooLarge():
            return Refusal(str(error), code="too_large", exit=Exit.WRONG)
        case CannotDo() | StoreError() | SteeringRefused():
            return Refusal(str(error), code="cannot_do", exit=Exit.CANNOT)
        case RPCError():
            message = f"Temporal did not do it: {error.message}. Is this home up? See ./starter.py up."
            return Refusal(message, code="temporal", exit=Exit.CANNOT)
        case _:
            message = f"That went wrong in a way we did not foresee ({type(error).__name__}: {error}). "
            return Refusal(message + "--debug before the command shows where.", code="bug", exit=Exit.CANNOT)


def _hear(home: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Options after the command add to those before it."""
    Said.home, Said.json = home or Said.home, as_json or Said.json


def _steer(verb: str, run: str, home: Path | None, *, as_json: bool) -> int:
    _hear(home, as_json)
    from terminal import running

    return _do(running.steer(_session(), verb, run, as_json=Said.json))


def _session() -> Any:
    from terminal.session import Session

    return Session(Said.home)


def _do(action: Coroutine[Any, Any, Exit]) -> int:
    return asyncio.run(action)


def _limit(text: str | None) -> timedelta | None:
    from domain.durations import duration

    if text is None:
        return None
    try:
        return duration(text)
    except ValueError as error:
        raise Refusal(f"--timeout {text!r} {error}.", code="usage", exit=Exit.WRONG) from None


def _since(text: str | None) -> datetime | None:
    """A time, or a duration back from now."""
    from domain.durations import duration

    if text is None:
        return None
    try:
        return datetime.now(UTC) - duration(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"--since {text!r} must be a duration such as 2h, or a time such as 2026-01-31T20:00:00Z."
        raise Refusal(message, code="usage", exit=Exit.WRONG) from None
    return time if time.tzinfo else time.astimezone()
