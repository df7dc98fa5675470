"""`--script`: what the simulator does to the requests of one plan, read before anything starts and handed over."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

from runtime import Mode
from terminal.outcome import Exit, Refusal

PATIENCE = 10.0
"""Seconds for the simulator to take a script."""


def read_script_file(path: Path) -> str:
    """The text of a script that the simulator can follow for one plan; otherwise a refusal that names the place."""
    from simulator.script import ScriptError, check_for_plan, read_script  # noqa: PLC0415  needed for --script alone

    try:
        text = path.read_text("utf-8")
        check_for_plan(read_script(text))
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}.", code="unreadable", exit=Exit.WRONG) from None
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8."
        raise Refusal(message, code="unreadable", exit=Exit.WRONG) from None
    except ScriptError as error:
        raise Refusal(f"{path}: {error}. Nothing was started.", code="invalid_script", exit=Exit.WRONG) from None
    return text


def check_simulated(mode: Mode) -> None:
    """A script can make the simulator fail, and nobody else."""
    if mode is not Mode.SIMULATED:
        message = "--script is for the simulator, and this run would be live: add --simulate, or leave --script out."
        raise Refusal(message, code="usage", exit=Exit.WRONG)


async def follow_script(url: str | None, plan: str, text: str, starter: str = "./starter.py") -> None:
    """Let the simulator at this address follow the script for the requests of one plan, from now on."""
    if url is None:
        message = f"No simulator runs in this home. See {starter} up."
        raise Refusal(message, code="no_simulator", exit=Exit.CANNOT)
    address = f"{url.rstrip('/')}/script?plan={quote(plan, safe='')}"
    try:
        await asyncio.to_thread(_post, address, text.encode())
    except urllib.error.HTTPError as error:
        message = f"The simulator at {url} does not take the script: {_reason(error)}."
        raise Refusal(message, code="invalid_script", exit=Exit.WRONG) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", error)
        message = f"The simulator at {url} does not answer ({why}): it cannot follow the script. See {starter} up."
        raise Refusal(message, code="no_simulator", exit=Exit.CANNOT) from None


def _post(address: str, body: bytes) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy of the environment: it is ours
    direct.open(address, data=body, timeout=PATIENCE).close()


def _reason(error: urllib.error.HTTPError) -> str:
    """The simulator's own words, or the status when somebody else answered."""
    with error:
        try:
            return str(json.loads(error.read())["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return f"status {error.code}"
