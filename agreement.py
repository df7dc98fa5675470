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

FORMAT = 1
"""Of what is hashed, and how: who says it in another one is not compared with. A change of it gets another number."""

ALIKE = {"tier", "limits", "headroom", "daily_usd", "governed"}
"""The settings that all workers of an account must have alike."""

log = structlog.get_logger()


def tag(settings: Settings) -> str:
    """The account, the format, and a hash of what all workers must have alike. Nothing else can be read from it.

    What a person has set is hashed, and not what a release makes of it: another one may know more fields of a limit, or
    other numbers of a tier, and its workers come one after the other.
    """
    said = settings.model_dump(mode="json", include=ALIKE, exclude_defaults=True)
    if settings.limits is not None:
        said.pop("tier", None)  # limits go before those of a tier
    if settings.limits in ("auto", {}):
        del said["limits"]  # they are learned, as without a word
    if settings.daily_usd is not None:
        said["daily_usd"] = str(settings.daily_usd.normalize())  # 5 and 5.00 are one sum
    hashed = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return f"{settings.account}.{FORMAT}.{hashed[:LENGTH]}"


def identity(settings: Settings) -> str:
    """What this process is called at Temporal: as the SDK has it, and the tag behind it."""
    return f"{_name()}{TAGGED}{tag(settings)}"


async def agree(client: Client, queue: str, settings: Settings) -> None:
    """Return when no other worker of the account is set otherwise, in whatever region: all of them keep the bank.

    One of another release may not say how it is set, or in another format. Who may not ask cannot be helped.
    """
    try:
        others = await pollers_on(client, quota_queue(queue))
    except RPCError as error:
        log.warning("worker_agreement_unknown", error=error.status.name)
        return
    own = tag(settings)
    account_and_format = own.rpartition(".")[0]
    for other in others:
        if other.identity == _name() or other.tag.rpartition(".")[0] != account_and_format or other.tag == own:
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
