"""What an agent has spent in a run, by the ledger. What has come to its end is read once.

It is asked before every call of an agent that has less money by now than its run has set aside for it, also while a
grant of quota waits, which does not keep: and a large run has tens of thousands of entries.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from decimal import Decimal

from books import Books, Line
from domain.prices import NOTHING, PriceList, cost_of_calls

RUNS_KEPT = 8
"""Runs whose sums are kept in memory per process."""


class Spending:
    """One per worker process."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    async def of_agent(self, run: str, agent: str, prices: PriceList, *, but_for: tuple[str, int | None]) -> Decimal:
        """What an agent, by name and version, has spent in a run, with all that is under way at its worst.

        But for one request, by its place in the ledger and its number: that of who asks, if it is written down already.
        """
        account = self._accounts.get(run)
        if account is None or account.prices != prices:
            account = self._accounts[run] = _Account(run, prices)
        self._accounts.move_to_end(run)
        if len(self._accounts) > RUNS_KEPT:
            self._accounts.popitem(last=False)
        await account.bring_up_to_date(self._books)
        return account.of_agent(agent, but_for)


class _Account:
    """What is known of one run."""

    def __init__(self, run: str, prices: PriceList) -> None:
        self.run, self.prices = run, prices
        self._settled: dict[str, tuple[list[str], Mapping[str | None, Decimal]]] = {}
        """By the place of a call: what was written down of it, and what it has cost whom. An entry never changes, so
        this holds until there is another one."""
        self._open: list[Line] = []
        """The requests of all other calls."""
        self._lock = asyncio.Lock()
        self._begun = self._done = 0
        """The last reading that was begun, and the last that came to its end."""

    def of_agent(self, agent: str, but_for: tuple[str, int | None]) -> Decimal:
        """What an agent has spent by the last reading."""
        settled = sum((costs.get(agent, NOTHING) for _, costs in self._settled.values()), NOTHING)
        under_way = [line for line in self._open if line.intent.agent == agent and (line.place, line.number) != but_for]
        return settled + cost_of_calls(self.prices.models, [line.spent for line in under_way])

    async def bring_up_to_date(self, books: Books) -> None:
        """Read what is new. A reading that was begun after they asked serves all who wait for one."""
        asked = self._begun
        async with self._lock:
            if self._done > asked:
                return
            self._begun = number = self._begun + 1
            await self._read(books)
            self._done = number

    async def _read(self, books: Books) -> None:
        names = await books.names(self.run)
        known = {place: there for place, (there, _) in self._settled.items()}
        new = [place for place, there in names.items() if known.get(place) != there]
        found: list[Line] = []
        for place, lines in (await books.of_calls({place: names[place] for place in new})).items():
            self._settled.pop(place, None)
            if all(line.is_settled for line in lines):
                self._settled[place] = names[place], self._costs(lines)
            else:
                found += lines
        self._open = found

    def _costs(self, lines: list[Line]) -> Mapping[str | None, Decimal]:
        costs: dict[str | None, Decimal] = {}
        for line in lines:
            cost = cost_of_calls(self.prices.models, [line.spent])
            costs[line.intent.agent] = costs.get(line.intent.agent, NOTHING) + cost
        return costs
