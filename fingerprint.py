"""A fingerprint of the credentials that a process has: it tells one key from another, and nothing of the key itself."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path

from private_files import written_once
from runtime import Credentials

LENGTH = 16
"""Hexadecimal digits: enough to tell keys apart, and far too few to stand for one."""


def fingerprint(home: Path) -> str | None:
    """That of the credentials in the environment of this process; none without credentials.

    It is salted by the home: whoever sees fingerprints of two homes does not learn that they share a key.
    """
    found = Credentials.from_environment()
    if found is None:
        return None
    salt = written_once(home / "services" / "fingerprint.salt", secrets.token_hex(32))
    said = json.dumps([found.api_key, found.auth_token, found.base_url])
    return hmac.new(salt.encode(), said.encode(), hashlib.sha256).hexdigest()[:LENGTH]
