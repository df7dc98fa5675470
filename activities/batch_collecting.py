"""Briefs of one run that come within a moment go into one batch."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

import structlog

from activities.batch_book import BatchBook
from activities.batch_book import Member as Whose
from activities.batch_lookout import Lookout
from activities.meter import Hold
from activities.model import BatchStanding, LanguageModel
from domain.briefing import Brief
from store import StoreUnavailable

MOMENT = 1.0
"""Seconds for which a batch is open for more: tasks that became ready together come within it."""

MOST, MOST_BYTES = 1000, 20_000_000
"""Of one batch. The provider takes more, but one answer about it should not be huge."""

log = structlog.get_logger()


class NeverSent(Exception):
    """Somebody who took us for lost has called the batch off: nothing was sent."""


@dataclass(eq=False)
class Member:
    """One brief on its way."""

    whose: Whose
    brief: Brief
    pay: Callable[[], AbstractAsyncContextManager[Hold]]
    """Draws its money, and may wait for a minute. What has not begun at the end of the block goes back."""
    intend: Callable[[str], Awaitable[str]]
    """Called with our name for its batch when all that go in it have paid: asks what else keeps it from going, writes
    it down, and gives its custom id."""
    sent: asyncio.Future[BatchStanding] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    id: str = ""
    hold: Hold = field(default_factory=Hold)
    leaves: bool = False
    """Whether it may be written down already that it is sent."""


@dataclass
class _Open:
    chain: str
    members: list[Member] = field(default_factory=list)
    size: int = 0


class Collector:
    """One per worker process."""

    def __init__(self, model: LanguageModel, book: BatchBook, lookout: Lookout) -> None:
        self._model, self._book, self._lookout = model, book, lookout
        self._open: dict[str, _Open] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, run: str, chain: str, member: Member) -> BatchStanding:
        """Have a brief answered in a batch with others; how the batch stands when it is made."""
        size = len(member.brief.model_dump_json())
        group = self._open.get(run)
        if group is None or len(group.members) >= MOST or group.size + size > MOST_BYTES:
            group = self._open[run] = _Open(chain)
            sending = asyncio.create_task(self._send_soon(run, group))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        group.members.append(member)
        group.size += size
        try:
            return await asyncio.shield(member.sent)
        finally:
            if not (member.sent.done() or member.leaves):
                member.sent.cancel()  # its task is stopped, and its request is not on its way
                if member in group.members:
                    group.members.remove(member)

    async def _send_soon(self, run: str, group: _Open) -> None:
        await asyncio.sleep(MOMENT)
        if self._open.get(run) is group:
            del self._open[run]
        members, group.members = group.members, []
        try:
            await self._send(run, group.chain, members)
        except Exception as error:  # noqa: BLE001  everybody who waits must hear of it, whatever it is
            for member in members:
                if not member.sent.done():
                    member.sent.set_exception(error)
                    member.sent.exception()  # who has left need not hear it

    async def _send(self, run: str, chain: str, members: list[Member]) -> None:
        name = secrets.token_hex(8)
        async with AsyncExitStack() as drawn:
            await asyncio.gather(*(self._pay(member, drawn) for member in members))
            paid = [member for member in members if not member.sent.done()]
            await asyncio.gather(*(self._intend(member, name) for member in paid))
            going = [member for member in paid if not member.sent.done()]
            if not going:
                return
            ids, whose = tuple(member.id for member in going), tuple(member.whose for member in going)
            if not await self._book.announce(run, name, ids, whose):
                raise NeverSent
            for member in going:
                member.hold.begun()
        user = hashlib.sha256(run.encode()).hexdigest()[:32]
        standing = await self._model.make_batch({member.id: member.brief for member in going}, user=user)
        self._lookout.mind(run, chain, name, standing.id)  # also when all who wanted it have left meanwhile
        await self._write_down(run, name, standing.id)
        log.info("batch_made", requests=len(going))
        for member in going:
            if not member.sent.done():
                member.sent.set_result(standing)

    async def _pay(self, member: Member, drawn: AsyncExitStack) -> None:
        async def paid() -> None:
            member.hold = await drawn.enter_async_context(member.pay())

        await _or_stay(member, paid())

    async def _intend(self, member: Member, name: str) -> None:
        member.leaves = True  # from here on the ledger knows of it, and who stops its task asks the ledger

        async def intended() -> None:
            member.id = await member.intend(name)

        await _or_stay(member, intended())

    async def _write_down(self, run: str, name: str, id: str) -> None:
        """Keep the id, however long it takes: without it somebody would have to look for the batch."""
        while True:
            try:
                return await self._book.made(run, name, id)
            except StoreUnavailable as error:
                log.warning("batch_not_kept_yet", error=type(error).__name__)
                await asyncio.sleep(1)


async def _or_stay(member: Member, step: Awaitable[None]) -> None:
    """A step of a member on its way; who fails stays behind: its own door knows what that means."""
    try:
        await step
    except Exception as error:  # noqa: BLE001  whatever it is, the others go
        if not member.sent.done():
            member.sent.set_exception(error)
            member.sent.exception()
