"""What travels through Temporal: pydantic values as JSON, compressed when large, refused when too large.

Texts stay as they are up to a size: the stock Web UI shows them (summaries, details), and knows nothing of our codec.
With a key all of it is encrypted after that, and so are the messages of failures; the Web UI then shows ciphertext.

Every process uses the same `data_converter`; a process without it could not read what the others wrote.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from sealing import NO_KEYS, Keyring

COMPRESS_FROM = 2_048
"""Bytes. Below this little is gained, and the stock Web UI can show the value as it is."""

LEGIBLE_TO = 128 * 1024
"""Bytes up to which a text is left alone. A page of details is at most 20 KB, and JSON may write a letter as six."""

PAYLOAD_LIMIT = 1_500_000
"""Bytes of one encoded payload. Temporal refuses 2 MiB, and retries an activity whose result was refused."""

INFLATED_LIMIT = 64 * 1024 * 1024
"""Bytes that one payload may become when it is read: a small one must not be able to fill the memory."""

ENCODING = b"binary/zlib"
SEALED = b"binary/encrypted"
KEY_ID = "encryption-key-id"
PLACE = b"payload"
"""What a payload is sealed for: it may stand anywhere in Temporal, and nowhere else."""


class PayloadTooLarge(ValueError):
    """A value that Temporal would not carry. The same value would be refused again: never worth a retry."""

    def __init__(self, name: str, size: int, limit: int = PAYLOAD_LIMIT) -> None:
        super().__init__(f"{name!r} is {size:,} bytes when encoded; at most {limit:,} can travel through Temporal")
        self.name = name
        self.size = size


class ZlibCodec(PayloadCodec):
    """Compress payloads that gain from it. What others wrote plainly (the Web UI, `temporal`) is read as it is."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads, each compressed when that makes it smaller."""
        return [compressed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they were before `encode`."""
        return [inflated(payload) for payload in payloads]


class SealingCodec(ZlibCodec):
    """Compress as ever, then encrypt. What was written before there was a key is read as it is."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads, compressed where that helps, each encrypted by the first key."""
        return [self._sealed(payload) for payload in await super().encode(payloads)]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they were before `encode`; `WrongKey` when the key is not there."""
        return await super().decode([unsealed(payload, self._keys) for payload in payloads])

    def _sealed(self, payload: Payload) -> Payload:
        metadata = {"encoding": SEALED, KEY_ID: self._keys.ids[0].encode()}
        return Payload(metadata=metadata, data=self._keys.sealed(payload.SerializeToString(), PLACE))


class PlainCodec(ZlibCodec):
    """The codec of a process without keys: it says which key it lacks."""

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they were before `encode`."""
        return await super().decode([unsealed(payload, NO_KEYS) for payload in payloads])


DATA_CONVERTER = DataConverter(payload_converter_class=PydanticPayloadConverter, payload_codec=PlainCodec())
"""That of a process without keys."""


def data_converter(keys: Keyring) -> DataConverter:
    """What values become on their way to Temporal. Without a key, messages of failures stay readable in the Web UI."""
    if not keys:
        return DATA_CONVERTER
    return DataConverter(
        payload_converter_class=PydanticPayloadConverter,
        payload_codec=SealingCodec(keys),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def unsealed(payload: Payload, keys: Keyring) -> Payload:
    """The payload that was encrypted; any other as it is."""
    if payload.metadata.get("encoding") != SEALED:
        return payload
    return Payload.FromString(keys.opened(payload.data, PLACE))


def compressed(payload: Payload) -> Payload:
    """The payload inside a smaller one, or the payload itself when there is nothing to gain or people read it."""
    if payload.ByteSize() < COMPRESS_FROM or _is_read_by_people(payload):
        return payload
    smaller = Payload(metadata={"encoding": ENCODING}, data=zlib.compress(payload.SerializeToString()))
    return smaller if smaller.ByteSize() < payload.ByteSize() else payload


def _is_read_by_people(payload: Payload) -> bool:
    """Whether it is a text, or an answer of Temporal's own (json/protobuf): the query for current details gives one."""
    encoding = payload.metadata.get("encoding")
    text = encoding == b"json/plain" and payload.data.startswith(b'"')
    return (text or encoding == b"json/protobuf") and payload.ByteSize() <= LEGIBLE_TO


def inflated(payload: Payload) -> Payload:
    """The payload that `compressed` was given."""
    if payload.metadata.get("encoding") != ENCODING:
        return payload
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(payload.data, INFLATED_LIMIT)
    except zlib.error as error:
        raise ValueError(f"a compressed payload is damaged: {error}") from error
    if not stream.eof:
        why = f"it is larger than {INFLATED_LIMIT:,} bytes" if stream.unconsumed_tail else "its end is missing"
        raise ValueError(f"a compressed payload cannot be read: {why}")
    return Payload.FromString(data)


def encoded_size(value: Any) -> int:
    """Bytes of the value as Temporal would get it."""
    (payload,) = DATA_CONVERTER.payload_converter.to_payloads([value])
    return compressed(payload).ByteSize()


def check_size(name: str, value: Any) -> None:
    """Raise `PayloadTooLarge` when the value cannot travel. Ask before Temporal does: it would retry, and pay again."""
    if (size := encoded_size(value)) > PAYLOAD_LIMIT:
        raise PayloadTooLarge(name, size)
