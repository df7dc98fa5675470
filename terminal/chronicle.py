"""The command that asks the event log. Heavy imports are inside, as those of all commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from terminal import completing
from terminal.said import Said, do, hear, session
from terminal.words import Home, Json, time_of

Words = list[str] | None

RunOrReaders = Annotated[
    str | None,
    typer.Argument(metavar="[RUN|readers]", help="One run; 'readers' lists who reads.", autocompletion=completing.runs),
]
All = Annotated[bool, typer.Option("--all", metavar="", help="Of all runs.")]
Types = Annotated[Words, typer.Option("--type", metavar="T", help="Of this type: task.failed, task., *.completed.")]
Sources = Annotated[Words, typer.Option("--source", metavar="S", help="Told by this source.")]
Runs = Annotated[Words, typer.Option("--run", metavar="RUN", help="Of these runs; night-* stands for several.")]
Subjects = Annotated[Words, typer.Option("--subject", metavar="RUN/TASK", help="On this run or task; */report.")]
Correlations = Annotated[Words, typer.Option("--correlation", metavar="ID", help="Of a run and all its retries.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME|2h", help="Only later ones.")]
Follow = Annotated[bool, typer.Option("--follow", metavar="", help="Go on: until the run has ended, or Ctrl-C.")]
Reader = Annotated[str | None, typer.Option("--reader", metavar="NAME", help="Go on where this reader was.")]
Forget = Annotated[str | None, typer.Option("--forget", metavar="NAME", help="Forget where a reader was.")]


def events(
    run: RunOrReaders = None,
    every: All = False,
    type: Types = None,
    source: Sources = None,
    runs: Runs = None,
    subject: Subjects = None,
    correlation: Correlations = None,
    since: Since = None,
    follow: Follow = False,
    reader: Reader = None,
    forget: Forget = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """What happened in a run, in order, or in all runs by time. Options may be repeated: one of each kind must fit."""
    hear(home, json)
    from terminal import readers, telling
    from terminal.show_event import event_types

    if forget is not None:
        return do(readers.forget(session(), forget, as_json=Said.json))
    if run == "readers":
        return do(readers.show(session(), as_json=Said.json))
    asked = telling.Asked(
        run=run,
        every=every,
        types=event_types(type or ()),
        sources=source or (),
        runs=runs or (),
        subjects=subject or (),
        correlations=correlation or (),
        since=time_of(since),
        follow=follow,
        reader=reader,
    )
    return do(telling.tell(session(), asked, as_json=Said.json))


COMMANDS: dict[str, Callable[..., int]] = {"events": events}
