"""The commands around audit trails. Heavy imports are inside, as those of all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terminal import completing
from terminal.said import Said, do, hear, session
from terminal.words import Home, Json, RunWords, age_of, time_of

app = typer.Typer(
    help="Who did what: every call, decision and refusal of a run, in a chain that shows what was changed.",
    no_args_is_help=True,
)

MaybeRun = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Run id, unique prefix, or latest.", autocompletion=completing.runs),
]


@app.command()
def show(
    run: MaybeRun = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only what this agent did, in all runs without RUN.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME|7d", help="Only later records.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """The records of a run; of an agent its calls, the data it read, and its results."""
    hear(home, json)
    from terminal import audit_looks

    return do(audit_looks.show(session(), run, agent=agent, since=time_of(since), as_json=Said.json))


@app.command()
def verify(run: RunWords, home: Home = None, json: Json = False) -> int:
    """Whether a trail is as it was written; names the first record that is not, and exits with 1."""
    hear(home, json)
    from terminal import audit_looks

    return do(audit_looks.verify(session(), run, as_json=Said.json))


@app.command()
def export(
    run: RunWords,
    format: Annotated[
        str, typer.Option("--format", metavar="jsonl|csv", help="As it stands, or as a table.")
    ] = "jsonl",
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Not to stdout.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """A trail as JSON Lines, as it stands, or as CSV for a spreadsheet."""
    hear(home, json)
    from terminal import audit_export

    return do(audit_export.export(session(), run, format=format, output=output, as_json=Said.json))


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", metavar="400d", help="Of runs that ended before that.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Say what would go, remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Also trails of less than 30 days.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Remove old audit trails. Nothing else removes any: `prune` of runs leaves them."""
    hear(home, json)
    from terminal import audit_export

    return do(audit_export.prune(session(), age_of(older_than), dry_run=dry_run, yes=yes, as_json=Said.json))
