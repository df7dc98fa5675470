"""`quota`: the banks of this home's accounts, asked. It starts nothing."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from quotas import PATIENCE, FoundBank, find_banks
from runtime import Mode, connect, queue_of
from terminal.outcome import PIPED, Exit, Refusal, print_json
from terminal.session import Session
from terminal.show_quota import show_quota
from terminal.text import plain

MODES = {queue_of(mode): mode for mode in Mode}


async def quota(session: Session, *, as_json: bool) -> Exit:
    """What each account may use, what is used of it, by whom, and who waits: in either mode that has a bank."""
    if not session.is_up():
        message = f"This home is not up, so nothing draws on a quota. `{session.starter} up` starts it."
        raise Refusal(message, code="not_up", exit=Exit.CANNOT)
    account = session.settings.account
    banks = await find_banks(await connect(session.settings), account, MODES)
    silent = [bank for bank in banks if bank.view is None]
    if silent and len(silent) == len(banks):
        raise Refusal(_unanswered(session, silent), code="no_worker", exit=Exit.CANNOT)
    if as_json:
        print_json({"schema": "nightcrew.quota/1", "banks": [_document(bank) for bank in banks]})
    elif not banks:
        sys.stdout.write(f"There is nothing to show of account {account!r}: its bank opens with the next call.\n")
    else:
        _show(banks)
    if silent:
        sys.stderr.write(f"{_unanswered(session, silent)}\n")
    return Exit.DONE


def _unanswered(session: Session, silent: list[FoundBank]) -> str:
    """Nobody runs the code of these banks now: what to do about the first of them."""
    mode = MODES.get(silent[0].queue)
    trouble = session.trouble(simulated=mode is Mode.SIMULATED) if mode is not None else None
    names = ", ".join(plain(bank.workflow) for bank in silent)
    remedy = trouble or f"Its workers are busy or gone: `{session.starter} doctor` tells."
    return f"No worker answered for {names} within {PATIENCE.total_seconds():g} s. {remedy}"


def _document(bank: FoundBank) -> dict[str, Any]:
    mode = MODES.get(bank.queue)
    view = None if bank.view is None else bank.view.model_dump(mode="json")
    names = {"account": bank.account, "mode": mode and mode.value, "workflow": bank.workflow}
    return {**names, "answered": view is not None, "quota": view}


def _show(banks: list[FoundBank]) -> None:
    console = Console() if sys.stdout.isatty() or os.environ.get("COLUMNS") else Console(width=PIPED, height=25)
    answered = [(bank, bank.view) for bank in banks if bank.view is not None]
    for place, (bank, view) in enumerate(answered):
        if place:
            console.print()
        mode = MODES.get(bank.queue)
        show_quota(console, bank.account, mode.upper() if mode else bank.queue, view, datetime.now(UTC))
