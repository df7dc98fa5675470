"""What the workers of one account must be set alike, and whether one is there that is set otherwise.

Two workers that count with different limits, or of which one minds who was onboarded and the other does not, would each
be right for itself and wrong together. So each says with its name how it is set, and who comes second does not begin.
[Why](docs/decisions/0046-workers-agree-before-they-begin.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from typing import TYPE_CHECKING

import structlog
from temporalio.service import RPCError

from activities.contract import quota_queue
from pollers import TAGGED, pollers_on
from runtime import CannotDo, Settings

if TYPE_CHECKING:
    from temporalio.client import Client

LENGTH = 8
"""Hexadecimal digits: enough to see that two are not alike."""

log = structlog.get_logger()


def tag(settings: Settings) -> str:
    """The account, and a hash of what all of its workers must have alike. Nothing else can be read from it."""
    terms = settings.terms.model_dump(mode="json", exclude={"daily"})
    daily = settings.daily_usd.normalize() if settings.daily_usd is not None else None  # 5 and 5.00 are one sum
    said = json.dumps({"terms": terms, "daily": str(daily), "governed": settings.governed}, sort_keys=True)
    return f"{settings.account}.{hashlib.sha256(said.encode()).hexdigest()[:LENGTH]}"


def identity(settings: Settings) -> str:
    """What this process is called at Temporal: as the SDK has it, and the tag behind it."""
    return f"{_name()}{TAGGED}{tag(settings)}"


async def agree(client: Client, queue: str, settings: Settings) -> None:
    """Return when no other worker of the account is set otherwise, in whatever region: all of them keep the bank.

    One of an older release does not say how it is set. Who may not ask who is there cannot be helped.
    """
    try:
        others = await pollers_on(client, quota_queue(queue))
    except RPCError as error:
        log.warning("worker_agreement_unknown", error=error.status.name)
        return
    own = tag(settings)
    for other in others:
        if other.identity == _name() or other.tag.rpartition(".")[0] != settings.account or other.tag == own:
            continue  # a container that was started again has the name it had
        raise CannotDo(
            f"The worker {other.identity} is at work for the same account ({settings.account}) with other settings: "
            "tier, limits, headroom, daily_usd and governed are the same for all workers of an account. Compare what "
            "`./starter.py doctor` says here and there and mend one, or stop that worker first; one that was killed "
            "counts for about a minute. To change a setting one worker after the other, start the new ones with "
            "`worker.py --anyway`."
        )


def _name() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"
