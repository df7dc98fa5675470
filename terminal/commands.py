"""The commands of `starter.py` and their words. Heavy imports are inside: `--help` must answer at once."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from terminal import agents, auditing, chronicle, helm, storage
from terminal.outcome import Exit, Refusal, ended, show_refusal
from terminal.said import Said, do, hear, session
from terminal.words import (
    Agents,
    Anyway,
    Budget,
    Concurrency,
    Debug,
    Foreground,
    GoalText,
    Home,
    Json,
    Limit,
    MaxTasks,
    Only,
    PaceWord,
    Params,
    PlanFile,
    PlaybookName,
    Region,
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
    region_word,
    time_of,
)

VERSION = "0.8.0"

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
    plan: PlanFile = None,
    playbook: PlaybookName = None,
    goal: GoalText = None,
    max_tasks: MaxTasks = None,
    id: RunId = None,
    simulate: Simulate = False,
    script: Script = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    budget: Budget = None,
    region: Region = None,
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

    here = session()
    shape = {"max_concurrency": max_concurrency, "mode": mode, "reuse": reuse, "only": only, "region": region}
    how = {"id": id, "simulate": simulate, "script": script, "budget": budget, "yes": yes}
    order = _order(here, (plan, playbook, goal, max_tasks), param, agents, **shape, **how)
    return do(starting.run(here, order, limit=limit_of(timeout), as_json=Said.json))


@app.command(rich_help_panel="Start")
def submit(
    plan: PlanFile = None,
    playbook: PlaybookName = None,
    goal: GoalText = None,
    max_tasks: MaxTasks = None,
    id: RunId = None,
    simulate: Simulate = False,
    script: Script = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    budget: Budget = None,
    region: Region = None,
    yes: Yes = False,
    reuse: Reuse = None,
    only: Only = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Start a plan and leave: its id alone on stdout. The run goes on without this terminal."""
    hear(home, json)
    from terminal import starting

    here = session()
    shape = {"max_concurrency": max_concurrency, "mode": mode, "reuse": reuse, "only": only, "region": region}
    how = {"id": id, "simulate": simulate, "script": script, "budget": budget, "yes": yes}
    order = _order(here, (plan, playbook, goal, max_tasks), param, agents, **shape, **how)
    return do(starting.submit(here, order, as_json=Said.json))


@app.command(rich_help_panel="Start")
def validate(
    plan: PlanFile = None,
    playbook: PlaybookName = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", metavar="", help="Every effective value and its source.")
    ] = False,
    graph: Annotated[bool, typer.Option("--graph", metavar="", help="What can run side by side.")] = False,
    brief: Annotated[str | None, typer.Option("--brief", metavar="TASK", help="What its agent would be told.")] = None,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    region: Region = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Check a plan: every mistake at once. Nothing is started."""
    hear(home, json)
    from runtime import Mode, load_settings
    from terminal import plans
    from terminal.session import mode_now

    settings = load_settings(Said.home)
    planned = plans.read_plan(
        plans.Written.of(plan, playbook, settings),
        params=params_of(param),
        agents=agents,
        max_concurrency=max_concurrency,
        mode=pace_of(mode),
        region=region_word(region),
        settings=settings,
        live=mode_now(simulate=False) is Mode.LIVE,
    )
    plans.show_plan(planned, resolved=resolved, graph=graph, brief=brief, as_json=Said.json)
    return Exit.DONE


@app.command(rich_help_panel="Start")
def estimate(
    plan: PlanFile = None,
    playbook: PlaybookName = None,
    simulate: Simulate = False,
    max_concurrency: Concurrency = None,
    mode: PaceWord = None,
    param: Params = None,
    agents: Agents = None,
    budget: Budget = None,
    region: Region = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """What a plan will cost and how long it will take: low, likely, high. Nothing is started."""
    hear(home, json)
    from terminal import estimating

    here = session()
    shape = {"max_concurrency": max_concurrency, "mode": mode, "region": region}
    how = {"id": None, "simulate": simulate, "script": None, "budget": budget}
    order = _order(here, (plan, playbook, None, None), param, agents, **shape, **how)
    return do(estimating.estimate(here.settings, order.planned, order.mode, order.budget, as_json=Said.json))


@app.command("plan", rich_help_panel="Start")
def plan_command(
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="What you want, or - for standard input.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; stdout if not said.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Write over a file that is there.")] = False,
    max_tasks: MaxTasks = None,
    id: RunId = None,
    simulate: Simulate = False,
    script: Script = None,
    max_concurrency: Concurrency = None,
    agents: Agents = None,
    budget: Budget = None,
    region: Region = None,
    yes: Yes = False,
    timeout: Limit = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Have a goal planned, and write the plan to read and edit. Nothing of it is done."""
    hear(home, json)
    from terminal import goals

    asked = goals.Asked(
        goal=goal,
        agents=agents,
        max_tasks=max_tasks,
        max_concurrency=max_concurrency,
        budget=budget_of(budget),
        region=region_word(region),
        id=id,
        simulate=simulate,
        script=script,
        agreed=yes,
    )
    limit = limit_of(timeout)
    return do(goals.write_plan(session(), asked, output, force=force, limit=limit, as_json=Said.json))


@app.command(rich_help_panel="Start")
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The plan to write.")] = Path("plan.yaml"),
    home: Home = None,
    json: Json = False,
) -> int:
    """Write a commented plan of three tasks that runs as it is."""
    hear(home, json)
    from terminal import inventory
    from terminal.session import starter_for

    return inventory.write_first_plan(file, starter_for(Said.home), as_json=Said.json)


app.add_typer(agents.app, name="agents", rich_help_panel="Start")


@app.command(rich_help_panel="Start")
def playbooks(home: Home = None, json: Json = False) -> int:
    """The playbooks there are: when each applies, and what it must be told."""
    hear(home, json)
    from terminal import playbooks

    here = session()
    return playbooks.show(here.settings, here.starter, as_json=Said.json)


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


for name, command in chronicle.COMMANDS.items():
    app.command(name, rich_help_panel="Look")(command)


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


app.add_typer(auditing.app, name="audit", rich_help_panel="Look")

for name, command in helm.COMMANDS.items():
    app.command(name, rich_help_panel="Steer")(command)


@app.command(rich_help_panel="Home")
def up(
    simulate: Simulate = False,
    anyway: Anyway = False,
    foreground: Foreground = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Start server, worker and simulator of this home in the background."""
    hear(home, json)
    from terminal import homing, standing

    if foreground:
        return do(standing.stand(session(), simulate=simulate, anyway=anyway, as_json=Said.json))
    return do(homing.up(session(), simulate=simulate, anyway=anyway, as_json=Said.json))


@app.command(rich_help_panel="Home")
def workers(
    verb: Annotated[str | None, typer.Argument(metavar="[promote|retire]", help="What to do with a version.")] = None,
    version: Annotated[str | None, typer.Argument(metavar="[VERSION]", help="Its NIGHTCREW_BUILD_ID.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Who works on which version, and what is open there. Promote one for new runs, or retire one that nobody needs."""
    hear(home, json)
    from terminal import workers

    return do(workers.workers(session(), verb, version, as_json=Said.json))


@app.command(rich_help_panel="Home")
def down(home: Home = None, json: Json = False) -> int:
    """Stop them. Open runs wait for the next up."""
    hear(home, json)
    from terminal import homing

    return do(homing.down(session(), as_json=Said.json))


for name, command in storage.COMMANDS.items():
    app.command(name, rich_help_panel="Home")(command)


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
        from terminal.session import starter_for

        return show_refusal(refusal_of(error, starter_for(Said.home)), as_json=Said.json)


def _wrong_usage(what: str, *, as_json: bool) -> Exit:
    """Say what was wrong; without a command at all the help was shown, and is the answer."""
    message = f"{ended(what)} ./starter.py --help shows what there is."
    return show_refusal(Refusal(message, code="usage", exit=Exit.WRONG), as_json=as_json) if what else Exit.WRONG


def _order(
    here: Any,
    named: tuple[str | None, str | None, str | None, int | None],
    param: list[str] | None,
    agents: Path | None,
    **more: Any,
) -> Any:
    """What `run` and `submit` are asked to start, and `estimate` is asked about: read and checked whole."""
    from terminal.plans import Written
    from terminal.starting import Order

    more |= {
        "pace": pace_of(more.pop("mode")),
        "budget": budget_of(more.pop("budget")),
        "agreed": more.pop("yes", False),
        "region": region_word(more.pop("region")),
        "only": more.pop("only", None) or (),
    }
    plan, playbook, goal, max_tasks = named
    if goal is not None:
        from terminal.goals import ordered

        others = {"PLAN": plan, "--playbook": playbook, "--param": param, "--agents": agents, **more}
        return ordered(here, goal, max_tasks, others)
    if max_tasks is not None:
        raise Refusal("--max-tasks is for a --goal.", code="usage", exit=Exit.WRONG)
    written = Written.of(plan, playbook, here.settings)
    return Order.read(written, params=params_of(param), agents=agents, settings=here.settings, **more)
