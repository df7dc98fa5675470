"""A page for whoever watches over a worker: 200 while it takes work, 503 before and after."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from runtime import CannotDo

PATIENCE = 5.0
"""Seconds for a request to come; it is not read beyond its headers."""


@dataclass(frozen=True)
class Address:
    """Where to answer."""

    host: str
    port: int


@dataclass
class Health:
    """What is answered."""

    state: str = "starting"

    def page(self) -> bytes:
        """The whole reply."""
        status = b"200 OK" if self.state == "working" else b"503 Service Unavailable"
        body = f"{self.state}\n".encode()
        head = b"HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        return head % (status, len(body)) + body


def address(text: str) -> Address:
    """An address from `PORT`, `HOST:PORT` or `[HOST]:PORT`; of this machine alone when there is no host."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address: write PORT, or HOST:PORT such as 0.0.0.0:8080")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


@asynccontextmanager
async def answering(at: Address | None) -> AsyncIterator[Health]:
    """Answer every request at this address, for as long as the block runs, with the state it is told."""
    health = Health()
    if at is None:
        yield health
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while (await reader.readline()).strip():  # a request that is not read whole is answered by a reset
                    pass
                writer.write(health.page())
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # they hung up, or do not speak HTTP
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, at.host, at.port)
    except OSError as error:
        where = f"{at.host}:{at.port}"
        raise CannotDo(
            f"Health checks cannot be answered at {where}: {error.strerror}. Choose another --health."
        ) from None
    async with server:
        yield health
