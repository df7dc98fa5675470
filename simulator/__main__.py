"""`python -m simulator`: the stand-in as a process. One JSON line on stdout when it is ready; exit 0 on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.config import Config
from simulator.script import Document, ScriptError, read_script
from simulator.server import LOOPBACK, Simulator

_LIMITS = {
    "requests_per_minute": "requests",
    "input_tokens_per_minute": "input_tokens",
    "output_tokens_per_minute": "output_tokens",
    "burst": "burst",
}


def main() -> None:
    """Read the command line and serve. What it says goes before what the script says."""
    parser = _parser()
    given = vars(parser.parse_args())
    script, log, host, port = (given.pop(name) for name in ("script", "log", "host", "port"))
    try:
        document = read_script(script.read_text("utf-8")) if script else Document()
        config = _config(document, given)
        asyncio.run(_serve(config, document, host, port, log))
    except ScriptError as error:
        parser.error(f"{script}: {error}")
    except ValidationError as error:
        parser.error("; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()))
    except OSError as error:
        sys.exit(f"simulator: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description="A stand-in for the Messages API.")
    absent = argparse.SUPPRESS
    parser.add_argument("--host", default=LOOPBACK, help="where to listen; it asks nobody for a password")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--script", type=Path, help="YAML file with rules and settings")
    parser.add_argument("--log", type=Path, help="file to which the bill is appended, as JSON Lines")
    parser.add_argument("--seed", type=int, default=absent)
    parser.add_argument("--ttft", type=float, default=absent, help="seconds to the first token")
    parser.add_argument("--tokens-per-second", type=float, default=absent, help="0: at once")
    parser.add_argument("--jitter", type=float, default=absent, help="0 to 1")
    parser.add_argument("--capacity", type=int, default=absent, help="calls in flight above which all become slower")
    parser.add_argument("--answer-tokens", type=int, nargs=2, default=absent, metavar=("LOW", "HIGH"))
    parser.add_argument("--requests-per-minute", type=int, default=absent)
    parser.add_argument("--input-tokens-per-minute", type=int, default=absent)
    parser.add_argument("--output-tokens-per-minute", type=int, default=absent)
    parser.add_argument("--burst", type=float, default=absent, help="part of a minute's allowance usable at once")
    return parser


def _config(document: Document, given: dict[str, object]) -> Config:
    limits = {_LIMITS[name]: given.pop(name) for name in _LIMITS if name in given}
    return document.config.changed({**given, "limits": document.config.limits.model_dump() | limits})


async def _serve(config: Config, document: Document, host: str, port: int, log: Path | None) -> None:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    asyncio.get_running_loop().set_exception_handler(_say_without_words)
    async with Simulator(config, host=host, port=port, log_file=log, keep_requests=0) as simulator:
        simulator.script(document.rules)
        sys.stdout.write(json.dumps({"url": simulator.url, "port": simulator.port}) + "\n")
        sys.stdout.flush()
        await told_to_stop.wait()


def _say_without_words(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A fault of ours in one line: asyncio's own words would quote the error, and with it perhaps a prompt."""
    sys.stderr.write(json.dumps({"event": "simulator_failed", "error": type(context.get("exception")).__name__}) + "\n")


if __name__ == "__main__":
    main()
