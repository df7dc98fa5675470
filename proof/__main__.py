"""`python -m proof`: do harm to homes, have the checker judge what is left, and tell it in a table."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from datetime import timedelta
from math import inf

from proof.campaign import LONG, SHORT, one_round, prove
from proof.faults import KINDS
from proof.page import table, write_page
from proof.plans import PLANS, SECRET_CANARY
from proof.rounds import Round, Strike
from proof.soak import soak
from runtime import leave

OTHERS = ("ANTHROPIC_", "AWS_", "NIGHTCREW_", "OTEL_", "TEMPORAL_")


def clean_environment() -> None:
    """Nothing here may spend money or touch a company's cluster or bucket. Where others have a key is a canary."""
    for name in [name for name in os.environ if name.startswith(OTHERS)]:
        del os.environ[name]
    os.environ.update(dict.fromkeys(("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY"), SECRET_CANARY))
    os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull


def main() -> int:
    """Prove; the exit code is 1 when an invariant is broken."""
    options = _options()
    clean_environment()
    began = time.monotonic()
    if options.hours is not None:
        return asyncio.run(soak(timedelta(hours=options.hours), options.seed))
    if options.fault:
        strikes = [Strike(options.fault, at, options.plan) for at in options.at.split(",")]
        tallies = asyncio.run(one_round(Round(options.fault, tuple(strikes)), options.seed))
    else:
        campaign = SHORT if options.short else LONG
        tallies = asyncio.run(prove(campaign, options.seed, homes=options.homes, minutes=options.minutes))
    sys.stdout.write(table(tallies) + "\n")
    broken = [violation for tally in tallies.values() for violation in tally.violations]
    for violation in broken:
        sys.stdout.write(f"\n{violation['invariant']} is broken, run {violation['run']}: {violation['what']}\n")
        sys.stdout.write(f"  again: {violation['again']}\n")
    if options.write:
        write_page(tallies, seed=options.seed, took=timedelta(seconds=time.monotonic() - began))
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof", description="Plans under fire, and a judge.")
    parser.add_argument("--seed", type=int, default=1, help="decides every moment that is left to chance")
    parser.add_argument("--short", action="store_true", help="ten kills: what the test suite does")
    parser.add_argument("--fault", choices=[*KINDS], help="this kind alone")
    parser.add_argument(
        "--at", default="run:5", metavar="POINTS", help="with --fault: run:17, task:5, call:2, after:1.5"
    )
    parser.add_argument("--plan", choices=[*PLANS], default="small", help="with --fault: the plan that is struck")
    parser.add_argument("--homes", type=int, default=2, help="how many homes at once")
    parser.add_argument("--minutes", type=float, default=inf, help="begin no new round after so many")
    parser.add_argument("--hours", type=float, help="the soak: a fault every 5 to 40 s for so long")
    parser.add_argument("--write", action="store_true", help="write docs/proof.md")
    return parser.parse_args()


def until_interrupted() -> int:
    """The exit code, also of who has seen enough: every process is stopped by then."""
    try:
        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    leave(until_interrupted())
