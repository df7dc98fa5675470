"""Encryption with a key of the operator: what of a run is in Temporal and in the store, nobody reads without it.

Keys come from the environment alone: `NIGHTCREW_ENCRYPTION_KEY`, or a file that `NIGHTCREW_ENCRYPTION_KEY_FILE` names.
There may be several. The first one encrypts, all decrypt: that is how a key is changed while runs are open. What is
sealed says by which key, by an id that is made from the key and tells nothing of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY, KEY_FILE = "NIGHTCREW_ENCRYPTION_KEY", "NIGHTCREW_ENCRYPTION_KEY_FILE"
VARIABLES = (KEY, KEY_FILE)

KEY_BYTES = 32
NONCE_BYTES = 12
ID_LENGTH = 16
MARK = b"\xffNC1"
"""What a sealed content begins with; no text does. After it: the id of the key, the nonce, what was encrypted."""

HEAD = len(MARK) + ID_LENGTH + NONCE_BYTES

MAKE_ONE = "`head -c 32 /dev/urandom | base64` makes one"


class WrongKey(Exception):
    """A key is missing or cannot be used. Another key may help; to ask again does not."""


class BrokenSeal(WrongKey):
    """What a key should open was changed since, or is damaged."""


@dataclass(frozen=True)
class Keyring:
    """The keys of a process. Without any, everything is left as it is."""

    keys: Sequence[bytes] = field(default=(), repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Keyring:
        """The keys that are set; an empty variable counts as unset."""
        given, file = environment.get(KEY) or "", environment.get(KEY_FILE) or ""
        if given and file:
            raise WrongKey(f"{KEY} and {KEY_FILE} are both set. Unset one of them.")
        if file and not Path(file).is_absolute():
            raise WrongKey(f"{KEY_FILE} must be an absolute path: every process of the home must find the same file.")
        if file:
            try:
                lines = Path(file).read_text("ascii").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                raise WrongKey(f"The file that {KEY_FILE} names cannot be read: {why}.") from None
            words = [word for line in lines for word in line.partition("#")[0].split()]
            if not words:
                raise WrongKey(f"The file that {KEY_FILE} names has no key in it. {MAKE_ONE}.")
        else:
            words = given.replace(",", " ").split()
        keys = [_key(word, KEY_FILE if file else KEY) for word in words]
        return cls(tuple(dict.fromkeys(keys)))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, in their order: the first one encrypts."""
        return tuple(self._ciphers)

    def __bool__(self) -> bool:
        return bool(self.keys)

    @cached_property
    def _ciphers(self) -> dict[str, AESGCM]:
        if not self.keys:
            return {}
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only who has a key needs it

        return {_id(key): AESGCM(key) for key in self.keys}

    def sealed(self, content: bytes, place: bytes) -> bytes:
        """The content encrypted by the first key, for one place alone: elsewhere it does not open."""
        id = self.ids[0]
        nonce = os.urandom(NONCE_BYTES)
        return MARK + id.encode() + nonce + self._ciphers[id].encrypt(nonce, content, place)

    def opened(self, content: bytes, place: bytes) -> bytes:
        """What was sealed; what never was is given as it is."""
        id = key_id(content)
        if id is None:
            return content
        if id not in self._ciphers:
            raise WrongKey(missing(id, self.ids))
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            return self._ciphers[id].decrypt(content[HEAD - NONCE_BYTES : HEAD], content[HEAD:], place)
        except InvalidTag:
            raise BrokenSeal(f"What was encrypted with the key {id} was changed since, or is damaged.") from None


NO_KEYS = Keyring()


def key_id(content: bytes) -> str | None:
    """The id of the key that a content was sealed with; None when it was not."""
    if len(content) < HEAD or not content.startswith(MARK):
        return None
    return content[len(MARK) : len(MARK) + ID_LENGTH].decode("ascii", "replace")


def missing(id: str, there: Sequence[str]) -> str:
    """The sentence for a key that is not there."""
    if not there:
        return f"This was encrypted with the key {id}, and no key is set here. Set {KEY} as where it was written."
    known = ", ".join(there)
    return f"This was encrypted with the key {id}, which is not among those of {KEY} here ({known}). Add it there."


def _id(key: bytes) -> str:
    """A name for a key: a hash of 256 random bits tells nothing of them."""
    return hashlib.sha256(b"nightcrew key id\0" + key).hexdigest()[:ID_LENGTH]


def _key(word: str, source: str) -> bytes:
    try:
        key = base64.b64decode(word.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise WrongKey(f"{source} has something in it that is no key of {KEY_BYTES} bytes in base64. {MAKE_ONE}.")
    return key
