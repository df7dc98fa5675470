"""A TCP proxy between a worker and its server: a network that can be cut, or slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PORTIONS = 20
"""In so many portions a second what a slow link passes on."""


class Link:
    """Passes everything on, in both directions, until it is told not to."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open = asyncio.Event()
        self._open.set()
        self._rate: int | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Pass nothing on; the connections stay, and neither side is told."""
        self._open.clear()

    def mend(self) -> None:
        """Pass on again, beginning with what was held back."""
        self._open.set()

    def slow(self, rate: int | None) -> None:
        """Pass on so many bytes a second from now on, of each connection in each direction; None: whatever comes."""
        self._rate = rate

    def reset(self) -> None:
        """Break every connection off, as a reboot of a router does."""
        for end in [*self._ends]:
            end.transport.abort()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """The address at which it listens, for as long as the block runs."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for pump in [*self._pumps]:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:  # the server is down: whoever asks sees that
            writer.transport.abort()
            return
        for source, sink in (reader, far_writer), (far_reader, writer):
            self._ends.add(sink)
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._pass_on(data, sink)
        except ConnectionError:
            pass  # one side hung up; the other is hung up on
        finally:
            self._ends.discard(sink)
            sink.close()
            with suppress(ConnectionError):
                await sink.wait_closed()

    async def _pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        while data:
            portion = len(data)
            if self._rate is not None:
                portion = max(1, self._rate // PORTIONS)
                await asyncio.sleep(portion / self._rate)
            await self._open.wait()
            sink.write(data[:portion])
            await sink.drain()
            data = data[portion:]
