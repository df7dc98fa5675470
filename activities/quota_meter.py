"""The meter of the account's quota: all calls of this process that wait are drawn for together, from one bank.

A grant is used at once or not at all: one that comes too late goes back, because the provider's buckets have not waited
for it. What a process says are sums since it began and all that it holds now, so nothing that is lost on the way or
said twice can make the bank give out more than there is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from time import monotonic
from types import TracebackType
from typing import Self

import structlog

from activities import quota_figures
from activities.meter import PATIENCE, GivenBack, Hold, Wish
from activities.quota_hold import LaneBook, QuotaHold
from activities.quota_money import DayBooks
from activities.quota_parking import awaited, busy_agent, moment_in, money_later, no_money, no_quota
from activities.teller import Teller, Unanswered
from domain.lineup import Waiter
from domain.models import Parked
from domain.quota.terms import Terms, lane_of, plus
from domain.quota.words import NO_LANE, Ask, Call, Grant

HOLD_LEAST, HOLD_MOST = 0.3, 4.0
"""Seconds from asking, after which a grant is not used any more: longer where the way to the bank is, or what the door
does between the grant and the call.

As long as any answer is awaited: on a slow server every grant would come too late, and nobody would ever call.
"""

WAYS, USES = 3, 2
"""The hold is so many times the usual way to the bank and back, or the usual time until a grant is used."""

ASK_AGAIN = 2.0
"""Seconds after which those who wait are asked for again at the latest."""

UNANSWERED = 0.2
"""Seconds until the next ask when the bank did not answer."""

REPORT_EVERY = 5.0
"""Seconds after which a process that holds something says so again: after 15 it would be taken for gone."""

FREE_FOR = 10.0
"""Seconds for which "nothing is limited" holds."""

ASKS_A_SECOND, ASKS_AT_ONCE = 4.0, 8.0
"""How often a process asks when it has much to ask for."""

ROUNDING = 1e-3
"""Seconds by which what was told and what comes back may differ though they are the same."""

AT_MOST = 64
"""Calls that one ask names: more are not granted at once in any case."""

COME_BACK, COME_BACK_LEAST = 0.75, 5.0
"""A task that would have waited too long comes again after this part of the longest wait of those who stay: the line is
short by then, and not empty. And after so many seconds at least."""

BYTES_PER_TOKEN = 3.5
"""Of what is sent. A little too many tokens are counted; what was too many comes back with the answer."""

MORE_FOR_WIDE = 0.65
"""Tokens on top for each character that is not ASCII: one of Hangul or Han is three bytes, and often more than one
token. With it such a character counts as about one and a half."""

log = structlog.get_logger()


@dataclass(eq=False)
class _Waiting:
    """A call in the line."""

    wish: Wish
    call: Call
    since: float
    granted: asyncio.Future[QuotaHold]

    @property
    def waiter(self) -> Waiter:
        """Its place in the line."""
        return Waiter(self.call.run, self.wish.priority, self.call.number, self.wish.rank)


class QuotaMeter:
    """One per worker process, open while its workers are."""

    def __init__(self, teller: Teller, terms: Terms, *, patience: float = PATIENCE) -> None:
        self._teller, self._terms, self._patience = teller, terms, patience
        self._worker = secrets.token_hex(4)
        self._numbers, self._asks = count(1), count(1)
        self._lanes: dict[str, LaneBook] = {}
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._pools: Counter[str] = Counter()
        self._leases: dict[str, tuple[int, float]] = {}
        self._till = DayBooks()
        self._is_capped = True
        """Whether the money of a day is limited, by us or by another process. Unknown at first: the bank tells."""
        self._news = asyncio.Event()
        self._unsaid = False
        """Whether there is something that the bank must hear at once."""
        self._silent = False
        """Whether the bank did not answer last time."""
        self._asked = float("-inf")
        self._elapsed: tuple[float, float] | None = None
        """What has passed for the bank by its last answer, and when that was on our clock."""
        self._credit, self._credit_at = ASKS_AT_ONCE, monotonic()
        self._way = self._use = 0.05
        self._pump: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._ask_forever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()  # a cancel alone is not enough: the SDK makes an unanswered update of it
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    # What the door asks

    @asynccontextmanager
    async def draw(self, wish: Wish) -> AsyncIterator[Hold]:
        """A block that begins when the bank has granted the call."""
        call = self._call(wish)
        began = monotonic()
        hold = self._freely(call) or await self._in_line(wish, call)
        quota_figures.granted(call.lane, monotonic() - began)
        try:
            yield hold
        finally:
            self._over(call, hold)

    @asynccontextmanager
    async def pay(self, wish: Wish) -> AsyncIterator[Hold]:
        """Draw the money of a call alone: a batch has limits of its own, and its answer may come to another process.

        So what is drawn for a call that has begun stays spent; for any other it goes back at the end of the block.
        """
        if not self._is_capped:
            yield Hold()
            return
        nothing: dict[str, object] = {"lane": NO_LANE, "amounts": {}, "agent": None, "pool": 0}
        call = self._call(wish).model_copy(update=nothing)
        hold = await self._in_line(wish, call)
        try:
            yield hold
        finally:
            self._over(call, hold)

    def _call(self, wish: Wish) -> Call:
        return Call(
            number=next(self._numbers),
            lane=lane_of(wish.model),
            amounts={
                "requests": 1.0,
                "input_tokens": float(int(wish.size / BYTES_PER_TOKEN + wish.wide * MORE_FOR_WIDE) + 1),
                "output_tokens": float(wish.max_tokens),
            },
            run=wish.run,
            agent=(wish.counted_as or wish.agent) if wish.pool else None,
            pool=wish.pool or 0,
            probe=wish.probe,
            usd=wish.usd,
        )

    def _freely(self, call: Call) -> QuotaHold | None:
        """Where nothing is limited nobody asks."""
        lane, now = self._lanes.get(call.lane), monotonic()
        if self._is_capped or lane is None or now >= lane.free_until or lane.lineup.waiting:
            return None
        if call.agent is not None:
            lease, until = self._leases.get(call.agent, (0, 0.0))
            if now >= until or self._pools[call.agent] >= lease:
                return None
        if call.agent is not None:
            self._news.set()  # from now on this process must say again and again what it holds
        return self._fly(call)

    def _fly(self, call: Call, by: Ask | None = None, day: str | None = None) -> QuotaHold:
        """Count a call as under way: by the grant for an ask, or freely."""
        lane = self._lanes[call.lane]
        lane.flying += 1
        if call.agent is not None:
            self._pools[call.agent] += 1
        if by is None:
            return QuotaHold(lane, call)
        self._till.hold(day, call.usd)
        hold = QuotaHold(lane, call, asked=by.clock, until=by.clock + by.hold, day=day)
        lane.holds.add(hold)
        return hold

    async def _in_line(self, wish: Wish, call: Call) -> QuotaHold:
        lane = self._lanes.setdefault(call.lane, LaneBook(self._tell))
        granted: asyncio.Future[QuotaHold] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[call.number] = _Waiting(wish, call, monotonic(), granted)
        lane.lineup = lane.lineup.joined(waiting.waiter)
        self._news.set()
        try:
            async with asyncio.timeout(self._patience + ASK_AGAIN):
                return await granted
        except TimeoutError:
            self._forgo(call, granted)
            raise GivenBack(Parked(why="worker", what="the quota bank does not answer")) from None
        except asyncio.CancelledError:
            self._forgo(call, granted)
            raise
        finally:
            self._waiting.pop(call.number, None)
            lane.lineup = lane.lineup.left(waiting.waiter)

    def _forgo(self, call: Call, granted: asyncio.Future[QuotaHold]) -> None:
        """Leave the line; what was granted in this very moment goes back."""
        if granted.done() and not granted.cancelled() and granted.exception() is None:
            self._over(call, granted.result())

    def _over(self, call: Call, hold: QuotaHold) -> None:
        lane = self._lanes[call.lane]
        lane.flying -= 1
        lane.holds.discard(hold)
        if call.agent is not None:
            self._pools[call.agent] -= 1
        lane.back = plus(lane.back, hold.back())
        self._till.settle(hold.day, call.usd, hold.cost)
        if hold.used_after is not None and call.lane != NO_LANE:  # money keeps, and waits for others
            self._use += 0.2 * (hold.used_after - self._use)
        has_room = call.agent is None or call.agent in self._leases
        if not (hold.free or (lane.free_until and has_room)):
            self._tell()  # what came back may be enough for the next, here or in another process

    def _tell(self) -> None:
        """There is something that the bank must hear at once."""
        self._unsaid = True
        self._news.set()

    # How the bank is asked

    async def _ask_forever(self) -> None:
        while not self._closed.is_set():
            try:
                await self._until_due()
                await self._ask_once()
            except Exception as bug:  # noqa: BLE001  whatever it is: without this loop no call is made any more
                if self._closed.is_set():
                    return
                self._unsaid = True
                if not (self._silent and isinstance(bug, Unanswered)):
                    log.warning("bank_unanswered", why=str(bug) if isinstance(bug, Unanswered) else repr(bug))
                self._silent = True
                await asyncio.sleep(UNANSWERED)

    async def _ask_once(self) -> None:
        self._news.clear()
        now = monotonic()
        ask = self._ask(now)
        self._asked, self._unsaid = now, False
        self._leases = {}  # what this ask says is all that the bank goes by: nobody flies freely until it has answered
        grant = await self._teller.draw(ask)
        self._silent = False
        self._take(ask, grant, monotonic() - now)

    async def _until_due(self) -> None:
        """Wait until there is something to ask or to say, and then until it is our turn to speak."""
        while (wait := self._due_in(monotonic())) > 0:
            try:
                async with asyncio.timeout(None if wait == float("inf") else wait):
                    await self._news.wait()
                self._news.clear()
                if self._waiting or self._unsaid:
                    break
            except TimeoutError:
                break
        await asyncio.sleep(self._spend_credit(monotonic()))

    def _due_in(self, now: float) -> float:
        """Seconds until the next ask, when nothing happens before."""
        if self._unsaid or (self._waiting and any(waiting.since > self._asked for waiting in self._waiting.values())):
            return 0.0
        if self._waiting:
            words = [self._lanes[waiting.call.lane].word for waiting in self._waiting.values()]
            return max(0.0, self._asked + min(ASK_AGAIN, *(word.retry_in for word in words)) - now)
        holds = any(self._pools.values()) or any(lane.flying and not lane.free_until for lane in self._lanes.values())
        return max(0.0, self._asked + REPORT_EVERY - now) if holds else float("inf")

    def _spend_credit(self, now: float) -> float:
        """Seconds to wait so that asks do not come too often."""
        self._credit = min(ASKS_AT_ONCE, self._credit + (now - self._credit_at) * ASKS_A_SECOND)
        self._credit_at = now
        self._credit -= 1
        return max(0.0, -self._credit / ASKS_A_SECOND)

    def _ask(self, now: float) -> Ask:
        return Ask(
            worker=self._worker,
            number=next(self._asks),
            clock=now,
            hold=min(HOLD_MOST, max(HOLD_LEAST, WAYS * self._way, USES * self._use)),
            terms=self._terms,
            lanes={name: lane.report(now) for name, lane in self._lanes.items() if name != NO_LANE},
            pools={agent: held for agent, held in self._pools.items() if held},
            calls=tuple(
                self._waiting[waiter.number].call
                for lane in self._lanes.values()
                for waiter in lane.lineup.first(AT_MOST)
            ),
            waiting=len(self._waiting),
            money=self._till.reports(),
            elapsed=None if self._elapsed is None else self._elapsed[0] + now - self._elapsed[1],
        )

    def _take(self, ask: Ask, grant: Grant, took: float) -> None:
        """Let go whoever was granted, if it is not too late; tell the others what they wait for."""
        now = monotonic()
        self._way += 0.2 * (took - self._way)
        self._elapsed = carried_on(ask, grant, now)
        for name, word in grant.lanes.items():
            lane = self._lanes.setdefault(name, LaneBook(self._tell))
            lane.word = word
            lane.free_until = now + FREE_FOR if word.free else 0.0
        self._leases = {agent: (lease, now + FREE_FOR) for agent, lease in grant.leases.items()}
        self._is_capped = grant.day is not None or self._terms.daily is not None
        late = took > ask.hold
        for call in ask.calls:
            waiting = self._waiting.get(call.number)
            if call.number in grant.numbers:
                self._release(ask, call, None if late else waiting, grant.day.date if grant.day else None)
            elif waiting is not None and grant.day is not None and call.number in grant.unpaid:
                self._turn_away(waiting, no_money(call, grant.day))
            elif waiting is not None and call.agent in grant.full:
                self._turn_away(waiting, busy_agent(waiting.wish.agent, call.pool, grant.full[call.agent]))
        if late:
            quota_figures.late()
        self._send_back_the_last(now)
        quota_figures.words(grant.lanes)

    def _release(self, ask: Ask, call: Call, waiting: _Waiting | None, day: str | None) -> None:
        hold = self._fly(call, ask, day)
        if waiting is None or waiting.granted.done():
            self._over(call, hold)  # nobody is there to use it, or it is too late: it goes back
            return
        lane = self._lanes[call.lane]
        lane.lineup = lane.lineup.served(waiting.waiter)
        del self._waiting[call.number]
        waiting.granted.set_result(hold)

    def _send_back_the_last(self, now: float) -> None:
        """Tell everybody who still waits what for; whoever would wait too long goes back to its run."""
        for name, lane in self._lanes.items():
            word, stays, goes = lane.word, 0.0, list[_Waiting]()
            if word.obstacle is None:
                continue
            what = awaited(word.obstacle, name)
            for place, waiter in enumerate(lane.lineup.first(len(lane.lineup.waiting))):
                waiting, expected = self._waiting[waiter.number], word.retry_in + place * word.spacing
                waiting.wish.waits(what, moment_in(expected))
                if now - waiting.since + expected > self._patience:
                    goes.append(waiting)
                else:
                    stays = expected
            again = word.retry_in if word.retry_in > self._patience else max(COME_BACK_LEAST, COME_BACK * stays)
            parked = money_later if word.obstacle == "money" else no_quota
            for waiting in goes:
                self._turn_away(waiting, parked(what, again))

    def _turn_away(self, waiting: _Waiting, parked: Parked) -> None:
        lane = self._lanes[waiting.call.lane]
        lane.lineup = lane.lineup.left(waiting.waiter)
        del self._waiting[waiting.call.number]
        if not waiting.granted.done():
            waiting.granted.set_exception(GivenBack(parked))


def carried_on(ask: Ask, grant: Grant, now: float) -> tuple[float, float] | None:
    """What has passed for the bank by now. One that tells of less than it was told is another, or has forgotten us."""
    if grant.elapsed is None:
        return None
    ours = ask.elapsed if ask.elapsed is not None and ask.elapsed < grant.elapsed + ROUNDING else float("-inf")
    return max(grant.elapsed, ours + now - ask.clock), now
