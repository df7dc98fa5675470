"""The commands about agents. Heavy imports are inside: `--help` must answer at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from terminal.said import Said, do, hear, session
from terminal.words import Agents, Home, Json, Limit, Note, Script, Simulate, Yes, limit_of

app = typer.Typer(
    help="The agents there are, what became of them, and what they have done.", invoke_without_command=True
)

AgentWords = Annotated[str, typer.Argument(metavar="NAME[@V]", help="An agent, or one version of it.")]
OneAgent = Annotated[str, typer.Argument(metavar="NAME[@V]", help="An agent; without a version, the one in use.")]
RightWord = Annotated[
    str, typer.Argument(metavar="RIGHT", help="models, tools, data, regions, budget_usd, or all of them.")
]
Pattern = Annotated[str, typer.Argument(metavar="[PATTERN]", help="What of it; * stands for any text.")]


@app.callback()
def list_agents(context: typer.Context, agents: Agents = None, home: Home = None, json: Json = False) -> int:
    """The agents there are, what became of them, and what they have done."""
    hear(home, json)
    context.obj = agents
    if context.invoked_subcommand is not None:
        return 0
    from runtime import load_settings
    from terminal import show_agents

    return do(show_agents.list_agents(load_settings(Said.home), agents, as_json=Said.json))


@app.command()
def show(context: typer.Context, name: OneAgent, agents: Agents = None, home: Home = None, json: Json = False) -> int:
    """One agent: what it is, what it may do, how it stands, what it has done, its recent runs."""
    hear(home, json)
    from terminal import show_agent

    return do(show_agent.show_agent(session(), agents or context.obj, name, as_json=Said.json))


@app.command()
def register(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="agents.yaml, or another.")] = None,
    note: Note = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Keep the definitions of a file for good, each under its name and version."""
    hear(home, json)
    from terminal import registering

    return do(registering.register(session(), file or context.obj, note, as_json=Said.json))


@app.command()
def onboard(
    context: typer.Context,
    name: OneAgent,
    simulate: Simulate = False,
    script: Script = None,
    yes: Yes = False,
    timeout: Limit = None,
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Have an agent do its check; the exit code tells whether it has passed."""
    hear(home, json)
    from terminal import onboarding

    how = onboarding.How(simulate=simulate, script=script, agreed=yes, limit=limit_of(timeout), note=note)
    return do(onboarding.onboard(session(), agents or context.obj, name, how, as_json=Said.json))


@app.command()
def enable(
    context: typer.Context,
    name: AgentWords,
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Let an agent work again that was disabled."""
    return _change(context, "enable", name, agents, home, as_json=json, note=note)


@app.command()
def disable(
    context: typer.Context,
    name: AgentWords,
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Give an agent no more work; its calls in open runs are refused, too."""
    return _change(context, "disable", name, agents, home, as_json=json, note=note)


@app.command()
def retire(
    context: typer.Context,
    name: AgentWords,
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Disable an agent for good: only a new version takes its place."""
    return _change(context, "retire", name, agents, home, as_json=json, note=note)


@app.command()
def role(
    context: typer.Context,
    name: AgentWords,
    verb: Annotated[str, typer.Argument(metavar="add|remove", help="Give it, or take it.")],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role of agents.yaml.")],
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Give an agent a role, or take one."""
    return _change(context, f"role {verb}", name, agents, home, as_json=json, note=note, role=role)


@app.command()
def withdraw(
    context: typer.Context,
    name: AgentWords,
    right: RightWord,
    pattern: Pattern = "*",
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Take a right from an agent: it holds for the next call of every run."""
    return _change(context, "withdraw", name, agents, home, as_json=json, note=note, right=right, pattern=pattern)


@app.command()
def grant(
    context: typer.Context,
    name: AgentWords,
    right: RightWord,
    pattern: Pattern = "*",
    note: Note = None,
    agents: Agents = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Give back a right that was withdrawn. Nothing is granted beyond the definition and its roles."""
    return _change(context, "grant", name, agents, home, as_json=json, note=note, right=right, pattern=pattern)


def _change(
    context: typer.Context, verb: str, name: str, agents: Path | None, home: Path | None, *, as_json: bool, **wish: Any
) -> int:
    hear(home, as_json)
    from terminal.registering import Wish, change

    return do(change(session(), agents or context.obj, Wish(verb, name, **wish), as_json=Said.json))
