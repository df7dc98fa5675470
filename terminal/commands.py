"""The commands of `starter.py` and their words. Heavy imports are inside: `--help` must answer at once."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from terminal import helm
from terminal.outcome import Exit, Refusal, ended, show_refusal
from terminal.said import Said, do, hear, session
from terminal.words import (
    Agents,
    Budget,
    Concurrency,
    Debug,
    Home,
    Json,
    Limit,
    Only,
    PaceWord,
    Params,
    PlanFile,
    Reuse,
    RunId,
    RunWords,
    Script,
    Simulate,
    TaskId,
    Yes,
    budget_of,
    limit_of,
    pace_of,
    params_of,
    time_of,
)

VERSION = "0.5.0"

app = typer.Typer(
    help="Hand over a plan of agent tasks in the evening, read a truthful report in the morning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:  # noqa: FBT001  as typer calls it
    if wanted:
        sys.stdout.write(f"nightcrew {VERSION}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", metavar="", help="Show the version.", callback=_version, is_eager=True)
]


@app.callback()
def before(home: Home = None, json: Json = False, debug: Debug = False, version: Version = False) -> None:  # noqa: D103
    del version
    Said.home, Said.json, Said.debug = home, json, debug


@app.command("run", rich_help_panel="Start")
def run_command(
    plan: PlanFile,
    id: RunId = None,
    simulate: Simulate = False,
    script: Script = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    budget: Budget = None,
    yes: Yes = False,
    reuse: Reuse = None,
    only: Only = None,
    timeout: Limit = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Start a plan, watch it, print its report; the exit code tells the outcome."""
    hear(home, json)
    from terminal import starting

    shape = {"max_concurrency": max_concurrency, "pace": pace_of(mode), "reuse": reuse, "only": only or ()}
    money = {"budget": budget_of(budget), "agreed": yes}
    here = session()
    order = _order(here, plan, param, agents, **shape, **money, id=id, simulate=simulate, script=script)
    return do(starting.run(here, order, limit=limit_of(timeout), as_json=Said.json))


@app.command(rich_help_panel="Start")
def submit(
    plan: PlanFile,
    id: RunId = None,
    simulate: Simulate = False,
    script: Script = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    budget: Budget = None,
    yes: Yes = False,
    reuse: Reuse = None,
    only: Only = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Start a plan and leave: its id alone on stdout. The run goes on without this terminal."""
    hear(home, json)
    from terminal import starting

    shape = {"max_concurrency": max_concurrency, "pace": pace_of(mode), "reuse": reuse, "only": only or ()}
    money = {"budget": budget_of(budget), "agreed": yes}
    here = session()
    order = _order(here, plan, param, agents, **shape, **money, id=id, simulate=simulate, script=script)
    return do(starting.submit(here, order, as_json=Said.json))


@app.command(rich_help_panel="Start")
def validate(
    plan: PlanFile,
    resolved: Annotated[
        bool, typer.Option("--resolved", metavar="", help="Every effective value and its source.")
    ] = False,
    graph: Annotated[bool, typer.Option("--graph", metavar="", help="What can run side by side.")] = False,
    brief: Annotated[str | None, typer.Option("--brief", metavar="TASK", help="What its agent would be told.")] = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Check a plan: every mistake at once. Nothing is started."""
    hear(home, json)
    from runtime import load_settings
    from terminal import plans

    planned = plans.read_plan(
        plan,
        params=params_of(param),
        agents=agents,
        max_concurrency=max_concurrency,
        mode=pace_of(mode),
        settings=load_settings(Said.home),
    )
    plans.show_plan(planned, resolved=resolved, graph=graph, brief=brief, as_json=Said.json)
    return Exit.DONE


@app.command(rich_help_panel="Start")
def estimate(
    plan: PlanFile,
    simulate: Simulate = False,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    budget: Budget = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """What a plan will cost and how long it will take: low, likely, high. Nothing is started."""
    hear(home, json)
    from terminal import estimating

    shape = {"max_concurrency": max_concurrency, "pace": pace_of(mode), "budget": budget_of(budget)}
    here = session()
    order = _order(here, plan, param, agents, **shape, id=None, simulate=simulate, script=None)
    return do(estimating.estimate(here.settings, order.planned, order.mode, order.budget, as_json=Said.json))


@app.command(rich_help_panel="Start")
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The plan to write.")] = Path("plan.yaml"),
    home: Home = None,
    json: Json = False,
) -> int:
    """Write a commented plan of three tasks that runs as it is."""
    hear(home, json)
    from terminal import inventory

    return inventory.write_first_plan(file, as_json=Said.json)


@app.command("agents", rich_help_panel="Start")
def agents_command(agents: Agents = None, home: Home = None, json: Json = False) -> int:
    """The agents there are: name, version, capabilities, model, limits."""
    hear(home, json)
    from terminal import inventory

    return inventory.show_agents(agents, as_json=Said.json)


@app.command(rich_help_panel="Start")
def schema(
    kind: Annotated[str, typer.Argument(metavar="[plan|agents|report|event]", help="Of what.")] = "plan",
    home: Home = None,
    json: Json = False,
) -> int:
    """The JSON Schema of a plan, of agents.yaml, of a report or of an event."""
    hear(home, json)
    from terminal import inventory

    return inventory.show_schema(kind)


@app.command("list", rich_help_panel="Look")
def list_command(
    every: Annotated[
        bool, typer.Option("--all", metavar="", help="Also those that ended more than a day ago.")
    ] = False,
    status: Annotated[str | None, typer.Option("--status", metavar="S", help="Only runs in this state.")] = None,
    plan: Annotated[str | None, typer.Option("--plan", metavar="NAME", help="Only runs of this plan.")] = None,
    attention: Annotated[
        bool, typer.Option("--attention", metavar="", help="Only runs that a person should look at.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Open runs and those of the last 24 hours."""
    hear(home, json)
    from terminal import listing

    return do(
        listing.list_runs(session(), every=every, status=status, plan=plan, attention=attention, as_json=Said.json)
    )


@app.command(rich_help_panel="Look")
def status(run: RunWords, task: TaskId = None, home: Home = None, json: Json = False) -> int:
    """One picture of a run now, or of one of its tasks."""
    hear(home, json)
    from terminal import looking

    return do(looking.status(session(), run, task, as_json=Said.json))


@app.command(rich_help_panel="Look")
def watch(run: RunWords, timeout: Limit = None, home: Home = None, json: Json = False) -> int:
    """A run, live, until it ends; the exit code tells the outcome. Ctrl-C leaves it running."""
    hear(home, json)
    from terminal import looking

    return do(looking.watch(session(), run, limit_of(timeout), as_json=Said.json))


@app.command(rich_help_panel="Look")
def result(
    run: RunWords,
    task: TaskId = None,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Wait for the end.")] = False,
    timeout: Limit = None,
    text: Annotated[
        bool, typer.Option("--text", metavar="", help="Only the text: the final one, or the task's.")
    ] = False,
    save: Annotated[Path | None, typer.Option("--save", metavar="DIR", help="Write one file per task.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """The report of a run; the exit code tells the outcome."""
    hear(home, json)
    from terminal import results

    limit = limit_of(timeout)
    return do(results.result(session(), run, task, wait=wait, limit=limit, text=text, save=save, as_json=Said.json))


@app.command(rich_help_panel="Look")
def events(
    run: RunWords,
    type: Annotated[str | None, typer.Option("--type", help="Only events of this type.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME|2h", help="Only later ones.")] = None,
    follow: Annotated[bool, typer.Option("--follow", metavar="", help="Go on until the run has ended.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """What happened in a run, in order."""
    hear(home, json)
    from terminal import looking

    return do(looking.events(session(), run, type=type, since=time_of(since), follow=follow, as_json=Said.json))


@app.command(rich_help_panel="Look")
def quota(home: Home = None, json: Json = False) -> int:
    """What the account may use, what is used of it, by whom, and who waits."""
    hear(home, json)
    from terminal import quota

    return do(quota.quota(session(), as_json=Said.json))


@app.command(rich_help_panel="Look")
def costs(
    by: Annotated[
        str, typer.Option("--by", metavar="run|plan|agent|day", help="What each line adds up.", show_default=True)
    ] = "run",
    since: Annotated[str | None, typer.Option("--since", metavar="TIME|7d", help="Only later runs.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """What runs have cost: by run, plan, agent or day."""
    hear(home, json)
    from terminal import spending

    return do(spending.costs(session(), by=by, since=time_of(since), as_json=Said.json))


@app.command("open", rich_help_panel="Look")
def open_command(run: RunWords, home: Home = None, json: Json = False) -> int:
    """The run's address in the Temporal Web UI; starts this home's server if needed."""
    hear(home, json)
    from terminal import homing

    return do(homing.open_run(session(), run, as_json=Said.json))


@app.command(rich_help_panel="Look")
def doctor(home: Home = None, json: Json = False) -> int:
    """Every setting and its source, what answers, what is missing and what mends it."""
    hear(home, json)
    from terminal import doctor, session

    return do(doctor.doctor(Said.home, session.starter_for(Said.home), as_json=Said.json))


for name, command in helm.COMMANDS.items():
    app.command(name, rich_help_panel="Steer")(command)


@app.command(rich_help_panel="Home")
def up(simulate: Simulate = False, home: Home = None, json: Json = False) -> int:
    """Start server, worker and simulator of this home in the background."""
    hear(home, json)
    from terminal import homing

    return do(homing.up(session(), simulate=simulate, as_json=Said.json))


@app.command(rich_help_panel="Home")
def down(home: Home = None, json: Json = False) -> int:
    """Stop them. Open runs wait for the next up."""
    hear(home, json)
    from terminal import homing

    return do(homing.down(session(), as_json=Said.json))


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
        return _wrong_usage(error.format_message(), as_json="--json" in arguments)
    except BrokenPipeError:
        return Exit.CANNOT  # whoever read us has gone, as `head` does: there is nobody to tell
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except Exception as error:
        if Said.debug:
            raise
        from terminal.refusals import refusal_of

        return show_refusal(refusal_of(error), as_json=Said.json)


def _wrong_usage(what: str, *, as_json: bool) -> Exit:
    """Say what was wrong; without a command at all the help was shown, and is the answer."""
    message = f"{ended(what)} ./starter.py --help shows what there is."
    return show_refusal(Refusal(message, code="usage", exit=Exit.WRONG), as_json=as_json) if what else Exit.WRONG


def _order(here: Any, plan: str, param: list[str] | None, agents: Path | None, **more: Any) -> Any:
    """What `run` and `submit` are asked to start, read and checked whole."""
    from terminal.starting import Order

    return Order.read(plan, params=params_of(param), agents=agents, settings=here.settings, **more)
