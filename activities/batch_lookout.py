"""Batches of runs that ended without a word, as by Terminate: nobody is left to call them off but whoever made them.

A run that is cancelled does it itself, by an activity, and so does one that skips its tasks. This is for the rest, and
lives as long as the worker.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

import structlog

from activities.batch_calling_off import CallingOff
from activities.gate import Gate, Standing
from activities.model import LanguageModel, ModelError
from store import Store

EVERY = 10.0
"""Seconds between two looks at the runs whose batches are under way."""

log = structlog.get_logger()


class Lookout:
    """One per worker process. Asks the gate about runs with a batch under way, and nothing while there is none."""

    def __init__(self, model: LanguageModel, store: Store, gate: Gate) -> None:
        self._model, self._gate = model, gate
        self._calling_off = CallingOff(model, store)
        self._minded: dict[str, tuple[str, str, str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more: the next worker that asks for one of these batches minds it."""
        self._closed = True
        self._minded.clear()
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        await self._calling_off.close()

    def mind(self, run: str, chain: str, name: str, id: str) -> None:
        """Call this batch off when its run is over: by our own name for it, and by that of the provider."""
        if self._closed:
            return
        self._minded[id] = (run, chain, name)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def forget(self, id: str) -> None:
        """It has ended."""
        self._minded.pop(id, None)

    async def _look(self) -> None:
        while self._minded:
            await asyncio.sleep(EVERY)
            for id, (run, chain, name) in [*self._minded.items()]:
                try:
                    standing = await self._gate.standing(run, chain)
                    if standing.over is not None and await self._call_off(run, name, id, standing):
                        self.forget(id)
                except ModelError as error:
                    log.warning("batch_not_called_off", error=type(error).__name__)  # and tried again at the next look
                except Exception as error:  # noqa: BLE001  whatever one batch has, the others are still looked after
                    log.warning("batch_not_looked_after", error=type(error).__name__)

    async def _call_off(self, run: str, name: str, id: str, standing: Standing) -> bool:
        """Whether nothing is left to do. Where another run has the name of this one, the ledger is that run's."""
        await self._model.cancel_batch(id)  # whatever the store says to the rest
        return standing.replaced or await self._calling_off.give_up_all(run, name, id)
