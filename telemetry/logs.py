"""Logs: JSON lines in files and containers, readable on a terminal. Names and figures, never a word of a prompt.

Run, task and attempt are on every line that concerns a run: within an activity they are bound once (`witness.py`), on
lines of workflows and of Temporal's core they are read from what the SDK knows of the line.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from telemetry.lines import in_order, known_to_temporal, short, types_and_places

if TYPE_CHECKING:
    from structlog.typing import Processor

WORKFLOWS = "temporalio.workflow"
"""The logger of workflow code: the one library whose lines are ours."""

COMPLAIN_EVERY = 60.0
"""Seconds between two lines about telemetry that could not be exported."""


def configure_logs(*, level: int = logging.INFO, file: Path | None = None) -> None:
    """Log to `file`, else to stderr: readable on a terminal, JSON lines otherwise. Stdout is for results alone.

    Libraries pass from WARNING on, whatever they are set to: the DEBUG log of a provider's SDK holds whole prompts.
    Of an error the types and places are told, not the messages, for the same reason.
    """
    import structlog  # noqa: PLC0415 - `starter.py --help` must answer at once

    stream = file.open("a", encoding="utf-8") if file else sys.stderr
    start: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    end: list[Processor] = [
        types_and_places,
        in_order,
        structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))
        if stream.isatty()
        else structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=[*start, *end],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    libraries = logging.StreamHandler(stream)
    libraries.addFilter(_passes)
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*start, structlog.stdlib.add_logger_name, known_to_temporal],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *end],
        )
    )
    logging.basicConfig(handlers=[libraries], level=logging.WARNING, force=True)
    logging.getLogger(WORKFLOWS).setLevel(level)
    _take_what_python_prints()


def complaints_about_telemetry() -> Callable[[logging.LogRecord], None]:
    """What tells the log of telemetry that could not be exported: now and then, and without words of others."""
    import structlog  # noqa: PLC0415

    log = structlog.get_logger()
    last = float("-inf")
    unsaid = 0

    def complain(record: logging.LogRecord) -> None:
        nonlocal last, unsaid
        if monotonic() - last < COMPLAIN_EVERY:
            unsaid += 1
            return
        log.warning("telemetry_trouble", why=_constant_words(record), unsaid=unsaid)
        last, unsaid = monotonic(), 0

    return complain


def _take_what_python_prints() -> None:
    """Log warnings and errors that nobody caught as lines of ours: Python would print them with paths and words."""
    import structlog  # noqa: PLC0415

    log = structlog.get_logger()

    def warn(_: Warning | str, category: type[Warning], file: str, line: int, *__: object) -> None:
        log.warning("python_warning", kind=category.__name__, place=f"{short(file)}:{line}")

    def crash(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
        log.critical("crashed", exc_info=(kind, error, stack))

    def thread_crash(unhandled: threading.ExceptHookArgs) -> None:
        log.critical("thread_crashed", exc_info=unhandled.exc_value)

    warnings.showwarning = warn  # type: ignore[assignment]
    sys.excepthook = crash
    threading.excepthook = thread_crash


def _passes(record: logging.LogRecord) -> bool:
    """Whether a line of a library is for our log. A failed activity is told by the witness, with its names."""
    if getattr(record, "__temporal_error_identifier", None) == "ActivityFailure":
        return False
    return record.levelno >= (logging.INFO if record.name == WORKFLOWS else logging.WARNING)


def _constant_words(record: logging.LogRecord) -> str:
    """The message with figures and types filled in. Other values stay out: an endpoint or a header may hold a key."""

    def shown(value: object) -> object:
        if isinstance(value, int | float):
            return value
        return type(value).__name__ if isinstance(value, BaseException) else "..."

    values = record.args if isinstance(record.args, tuple) else ()
    try:
        return str(record.msg) % tuple(shown(value) for value in values)
    except TypeError:
        return str(record.msg)
