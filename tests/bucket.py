"""A bucket for tests: moto's S3 in a process of its own, made to keep the promise that the ledger stands on.

S3 decides a conditional PUT in one step. moto looks first and writes afterwards, in many threads at once; here it
takes one request after the other, so that the two are one step. What is proven over it is that we send the condition,
and heed the answer; that S3 itself keeps its promise is Amazon's word.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "nightcrew"
CARELESS = "careless"
"""A bucket of a server that has never heard of conditional writes, as there are some."""

FORGETFUL = "forgetful"
"""A bucket that writes an object, and answers the first time with an error."""


class OneAtATime:
    """The application, one request after the other."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._turn = threading.Lock()
        self._forgotten: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._turn:
            path: str = environ["PATH_INFO"]
            if path.startswith(f"/{CARELESS}/"):
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if path.startswith(f"/{FORGETFUL}/") and environ["REQUEST_METHOD"] == "PUT" and path not in self._forgotten:
                self._forgotten.add(path)
                self._application(environ, lambda *_: None)
                start_response("500 Internal Server Error", [("Content-Length", "0")])
                return [b""]
            return [*self._application(environ, start_response)]


@contextmanager
def serving() -> Iterator[str]:
    """The address of the server."""
    command = [sys.executable, __file__]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        for bucket in BUCKET, CARELESS, FORGETFUL:
            urllib.request.urlopen(urllib.request.Request(f"{url}/{bucket}", method="PUT"), timeout=60).close()
        yield url
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def credentials(url: str) -> dict[str, str]:
    """The standard variables for this server: an address of its own is the only thing that is not Amazon's."""
    return {
        "AWS_ENDPOINT": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test-key-id",
        "AWS_SECRET_ACCESS_KEY": "test-secret-key",
    }


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _serve()
