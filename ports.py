"""Free ports of this machine, remembered so that a restarted service has the same address."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

from private_files import read_object, write_private
from runtime import CannotDo

LOOPBACK = "127.0.0.1"

PATIENCE = 1.0
"""Seconds for a remembered port to become free: a service that was killed gives back its lock first, then its ports."""

OURS = range(15_000, 30_000)
"""Below the ports that systems hand out by themselves. Temporal's server takes four of those for its own services after
we have chosen, and one that met our choice would end it at its start."""

TRIES = 50


def choose_ports(file: Path, names: Sequence[str]) -> dict[str, int]:
    """A free port for each name: the one remembered in the file if it still is, else another, then remembered."""
    remembered = read_object(file)
    with ExitStack() as taken:
        ports = {name: _free_port(remembered.get(name, 0), taken) for name in names}
    write_private(file, json.dumps(ports))
    return ports


def listens(port: int) -> bool:
    """Whether somebody listens on that port."""
    with socket.socket() as caller:
        return caller.connect_ex((LOOPBACK, port)) == 0


def _free_port(preferred: int, taken: ExitStack) -> int:
    """A port kept open until `taken` closes, so that the next one is another."""
    deadline = monotonic() + PATIENCE
    while preferred:
        if port := _bound(preferred, taken):
            return port
        if monotonic() > deadline:
            break
        sleep(0.02)
    for wanted in (*random.sample(OURS, TRIES), 0):
        if port := _bound(wanted, taken):
            return port
    raise CannotDo("No port is free on this machine.")


def _bound(port: int, taken: ExitStack) -> int | None:
    listener = taken.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port just left is free
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()  # a port that is only bound would be given to the next who asks, with this option
    except OSError:
        listener.close()
        return None
    return int(listener.getsockname()[1])
