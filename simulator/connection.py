"""One client's connection: framing by h11, and the raw transport under it for what no framing allows."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import h11

from simulator.replies import Ending, Reply

_READ = 65_536
_DROP_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 seconds: the kernel answers with RST


@dataclass(frozen=True)
class Request:
    """A request, read to its end."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class Connection:
    """Requests in, replies out, on one socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)
        # drain() then waits until the kernel has everything: a slow reader slows us, and a reset loses nothing sent.
        writer.transport.set_write_buffer_limits(high=0)

    async def request(self) -> Request | None:
        """The next request; None when there will be none."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_READ))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None

    async def client_left(self) -> None:
        """Return when the client has hung up. What it sends before that is kept for the next request."""
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(_READ):
                self._http.receive_data(data)

    async def send(self, reply: Reply, data: bytes) -> None:
        """A part of the body; the first part brings status and headers with it."""
        head = self._head(reply) if self._http.our_state is h11.SEND_RESPONSE else b""
        await self._write(head + (self._http.send(h11.Data(data=data)) or b""))

    async def finish(self, reply: Reply) -> bool:
        """End the reply in its way; whether the connection can serve another request."""
        match reply.ending:
            case Ending.COMPLETE:
                await self._write(self._http.send(h11.EndOfMessage()) or b"")
                return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
            case Ending.HANG:
                await asyncio.sleep(math.inf if reply.patience is None else reply.patience)
            case Ending.CLOSE:
                # A chunk that is announced and not finished; a document is short of its announced length anyway.
                await self._write(b"400\r\n:" if reply.streams else b"")
            case Ending.RESET:
                raw: socket.socket = self._writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_ON_CLOSE)
                self._writer.transport.abort()
        return False

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def _head(self, reply: Reply) -> bytes:
        framing = ("transfer-encoding", "chunked") if reply.streams else ("content-length", str(reply.length))
        response = h11.Response(status_code=reply.status, headers=[*reply.headers, framing])
        return self._http.send(response) or b""

    async def _write(self, data: bytes) -> None:
        if data:
            self._writer.write(data)
            await self._writer.drain()


def _request(head: h11.Request, body: bytes) -> Request:
    target = urlsplit(head.target.decode("ascii"))
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
    query = parse_qs(target.query, keep_blank_values=True)
    return Request(head.method.decode("ascii"), target.path, query, headers, body)
