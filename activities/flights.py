"""Calls under way in this process: two attempts at the same call join one flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass
class Flight(Generic[T]):
    """One call, and how many attempts wait for it."""

    call: asyncio.Task[T]
    passengers: int = 0


class Flights(Generic[T]):
    """At most one flight per key.

    When the server has lost sight of an attempt (a network cut longer than the heartbeat timeout), the call it started
    goes on: the next attempt joins it, or finds what it left in the ledger. Only a real cancel stops it.
    """

    def __init__(self) -> None:
        self._flying: dict[str, Flight[T]] = {}

    async def join(self, key: str, start: Callable[[], Coroutine[Any, Any, T]], *, flies_on: Callable[[], bool]) -> T:
        """The result of the flight of this key, started if there is none. `flies_on` is asked when we are cancelled."""
        flight = self._flying.get(key)
        if flight is None:
            flight = self._flying[key] = Flight(asyncio.create_task(start()))
            flight.call.add_done_callback(lambda call: self._land(key, call))
        flight.passengers += 1
        try:
            return await asyncio.shield(flight.call)
        except asyncio.CancelledError:
            if flight.passengers == 1 and not flies_on():
                self._remove(key, flight.call)  # nobody boards a flight that is being called off
                flight.call.cancel()
                await asyncio.wait([flight.call])
            raise
        finally:
            flight.passengers -= 1

    def _land(self, key: str, call: asyncio.Task[T]) -> None:
        self._remove(key, call)
        if not call.cancelled():
            call.exception()  # nobody may be left to hear it

    def _remove(self, key: str, call: asyncio.Task[T]) -> None:
        if key in self._flying and self._flying[key].call is call:
            del self._flying[key]
