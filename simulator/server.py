"""The server: connections, routes, the sending of replies, and the calls in flight."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import h11

from simulator.batch_routes import BATCHES, batch_reply, is_about_batches, makes_a_batch
from simulator.config import Config
from simulator.connection import Connection, Request
from simulator.control import control
from simulator.log import Entry, Log
from simulator.provider import COUNT_TOKENS, MESSAGES, Provider, Verdict
from simulator.replies import Ending, Frame
from simulator.script import Document, Rule, check_script

LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104  it listens where it is told, by default on this machine only


class Simulator:
    """`async with Simulator(Config(...)) as simulator:` serves at `simulator.url` until the block ends."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        log_file: Path | None = None,
        keep_requests: int = 100,
    ) -> None:
        self.host = host
        self.port = port
        self.in_flight = 0
        self.peak = 0
        self._at_work = 0
        self._provider = Provider(config or Config(), keep_requests=keep_requests)
        self._log_file = log_file
        self._log = Log()
        self._changed = asyncio.Event()
        self._conversations: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._log = Log(self._log_file)
        self._server = await asyncio.start_server(self._converse, self.host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        self._working = asyncio.create_task(self._work_on_batches())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self._working.cancel()
        for conversation in list(self._conversations):
            conversation.cancel()
        await asyncio.gather(self._working, *self._conversations, return_exceptions=True)
        self._log.close()

    @property
    def url(self) -> str:
        """What an SDK on this machine is given as its base URL."""
        return f"http://{LOOPBACK if self.host == EVERYWHERE else self.host}:{self.port}"

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self._provider.config

    @property
    def log(self) -> list[Entry]:
        """The bill so far, in order of arrival; a call being answered is in it, with no end yet."""
        return self._log.entries

    @property
    def requests(self) -> deque[object]:
        """Bodies of the last calls, for tests in this process. They are never served."""
        return self._provider.requests

    def calls(self, task: str | None = None) -> int:
        """How many messages were asked for, by this task or by all."""
        return sum(entry.path == MESSAGES and task in (None, entry.task) for entry in self.log)

    def script(self, rules: Iterable[Rule | Mapping[str, object]], **config: object) -> None:
        """Replace the rules, and change the settings that are given."""
        self.follow(check_script({"rules": list(rules), "config": config}))

    def follow(self, document: Document, *, plan: str | None = None) -> None:
        """Take the rules and the settings of a script, for everybody or for the requests of one plan."""
        self._provider.follow(document, plan=plan)
        self._change()

    def bill(self, *, after: int = 0) -> list[dict[str, object]]:
        """The log as JSON, from the entry that follows this number."""
        return self._log.after(after)

    def forget(self) -> None:
        """Start a new bill and a new peak. Calls in flight end unrecorded, except in the file."""
        self._log.entries.clear()
        self.peak = self.in_flight

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true of the simulator: looked at whenever a call arrives, moves on or ends."""
        while not condition():
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection for as long as both sides keep it."""
        conversation = asyncio.current_task()
        assert conversation is not None  # noqa: S101  the streams run this in a task
        self._conversations.add(conversation)
        connection = Connection(reader, writer)
        try:
            while (request := await connection.request()) is not None and await self._serve(connection, request):
                pass
        except (ConnectionError, h11.ProtocolError):
            pass  # they hung up, or do not speak HTTP
        except asyncio.CancelledError:
            pass  # the client left, or we are closing; the streams of Python 3.11 take a cancelled handler for an error
        except Exception as error:  # noqa: BLE001  the streams of early Python 3.11 would tell of it late, or never
            asyncio.get_running_loop().call_exception_handler({"message": "a conversation failed", "exception": error})
        finally:
            self._conversations.discard(conversation)
            await connection.close()

    async def _serve(self, connection: Connection, request: Request) -> bool:
        """Answer one request; whether the connection can take another."""
        if request.method == "POST" and request.path in (MESSAGES, COUNT_TOKENS):
            return await self._bill(connection, request)
        if is_about_batches(request):
            return await self._serve_batches(connection, request)
        reply = control(self, request)
        for frame in reply.frames:
            await connection.send(reply, frame.data or b"")
        return await connection.finish(reply)

    async def _serve_batches(self, connection: Connection, request: Request) -> bool:
        """Answer one request about batches. The making of one is an entry of the bill, and so is all that it brings."""
        self._provider.work(self._log, now=time.monotonic())
        entry = Entry(0, BATCHES, time.time(), self.in_flight)
        if makes_a_batch(request):
            entry = self._log.open(BATCHES, started=time.time(), in_flight=self.in_flight)
        reply = batch_reply(self._provider, request, entry)
        entry.status = reply.status
        if entry.number:
            self._log.end(entry, time.time())
        self._change()
        for frame in reply.frames:
            await asyncio.sleep(frame.wait)
            if frame.data is not None:
                await connection.send(reply, frame.data)
        return await connection.finish(reply)

    async def _work_on_batches(self) -> None:
        """Do each batch when its time has come; whatever happens may change the time."""
        while True:
            changed = self._changed
            now, seconds = time.monotonic(), self.config.batch_seconds
            if (end := self._provider.batches.next_end(seconds)) is not None and end <= now:
                self._provider.work(self._log, now=now)
                self._change()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if end is None else end - now):
                    await changed.wait()

    async def _bill(self, connection: Connection, request: Request) -> bool:
        """Answer one request of the API for as long as somebody is there to read, and write down what it came to."""
        if request.path == MESSAGES:
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        entry = self._log.open(request.path, started=time.time(), in_flight=self.in_flight)
        verdict = self._provider.judge(request, entry, time.monotonic())
        self._at_work += _is_work(entry, verdict)
        self._change()
        sending = asyncio.create_task(self._send(connection, verdict, entry))
        watching = asyncio.create_task(self._stop_when_left(connection, verdict, entry, sending))
        try:
            return await sending
        except ConnectionError:
            self._seal(entry, verdict, client_left=True)
            return False
        finally:
            self._seal(entry, verdict)
            watching.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    async def _stop_when_left(
        self, connection: Connection, verdict: Verdict, entry: Entry, sending: asyncio.Task[bool]
    ) -> None:
        await connection.client_left()
        sending.cancel()
        self._seal(entry, verdict, client_left=True)

    async def _send(self, connection: Connection, verdict: Verdict, entry: Entry) -> bool:
        """Put a reply on the wire in its own time; whether the connection can take another request.

        The call is over before its last bytes leave: who has read them may call again at once, and must not find
        himself in flight twice.
        """
        reply = verdict.reply
        begun = False
        for frame, last in _with_last(reply.frames):
            if frame.wait:
                await asyncio.sleep(frame.wait * self._stretch())
            if not begun:
                begun = True
                self._provider.begin(verdict, time.monotonic())
            entry.billed.output = frame.output
            if frame.data is not None:
                entry.status = reply.status
            if last and reply.ending is not Ending.HANG:
                entry.stop_reason = verdict.stop_reason
                self._seal(entry, verdict)
            if frame.data is not None:
                await connection.send(reply, frame.data)
            self._change()
        return await connection.finish(reply)

    def _seal(self, entry: Entry, verdict: Verdict, *, client_left: bool = False) -> None:
        """End a call, once: it is no longer in flight, what it did not use is given back, its entry is written."""
        if entry.ended is not None:
            return
        entry.client_left = client_left
        if entry.path == MESSAGES:
            self.in_flight -= 1
        self._at_work -= _is_work(entry, verdict)
        self._provider.settle(entry, verdict, time.monotonic())
        self._log.end(entry, time.time())
        self._change()

    def _stretch(self) -> float:
        """How much slower everything is than it would be alone: in proportion to the calls above the capacity."""
        capacity = self.config.capacity
        return max(1.0, self._at_work / capacity) if capacity else 1.0


def _is_work(entry: Entry, verdict: Verdict) -> bool:
    """Whether a model is busy with it: a call that is refused is in flight for a moment, and slows nobody down."""
    return entry.path == MESSAGES and verdict.reply.status == 200


def _with_last(frames: Iterable[Frame]) -> Iterator[tuple[Frame, bool]]:
    """Each frame, and whether it is the last; there may be no end of them."""
    rest = iter(frames)
    frame = next(rest)
    for following in rest:
        yield frame, False
        frame = following
    yield frame, True
