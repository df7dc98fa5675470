"""What is encrypted opens with its key, at its place, and with no other; keys are never in what is told."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from payloads import DATA_CONVERTER, KEY_ID, SEALED, data_converter
from sealing import KEY, KEY_FILE, MARK, BrokenSeal, Keyring, WrongKey, key_id
from store import Store, StoreError, open_store


def fresh_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def ring(*keys: str) -> Keyring:
    return Keyring.from_environment({KEY: ",".join(keys)})


OLD, NEW = fresh_key(), fresh_key()


@given(content=st.binary(max_size=300), place=st.binary(max_size=20))
def test_what_is_sealed_opens_at_its_place_alone(content: bytes, place: bytes) -> None:
    keys = ring(NEW)

    sealed = keys.sealed(content, place)

    assert keys.opened(sealed, place) == content
    assert key_id(sealed) == keys.ids[0]
    with pytest.raises(BrokenSeal):
        keys.opened(sealed, place + b"x")


def test_the_same_content_is_never_sealed_the_same() -> None:
    assert ring(NEW).sealed(b"word", b"") != ring(NEW).sealed(b"word", b"")


@pytest.mark.parametrize("at", [0, 20, 32, -1])
def test_a_flipped_bit_is_noticed(at: int) -> None:
    sealed = bytearray(ring(NEW).sealed(b"a secret", b"place"))
    sealed[at] ^= 1

    try:
        found = ring(NEW).opened(bytes(sealed), b"place")
    except WrongKey:
        return
    assert found == bytes(sealed), "it no longer looks encrypted, and is given as it is: nothing of the secret is in it"


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = ring(OLD).sealed(b"before", b"")
    both = ring(NEW, OLD)

    after = both.sealed(b"after", b"")

    assert (both.opened(before, b""), both.opened(after, b"")) == (b"before", b"after")
    with pytest.raises(WrongKey, match=rf"with the key {key_id(after)}, which is not among those of {KEY} here"):
        ring(OLD).opened(after, b"")
    with pytest.raises(WrongKey, match="no key is set here"):
        Keyring().opened(after, b"")


def test_keys_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the one of this year\n{NEW}\n\n{OLD}  # the one of last year\n")

    assert Keyring.from_environment({KEY_FILE: str(file)}) == ring(NEW, OLD)


@pytest.mark.parametrize(
    "environment",
    [
        {KEY: "secretword"},
        {KEY: base64.b64encode(b"secretword").decode()},
        {KEY: NEW, KEY_FILE: "/secretword"},
        {KEY_FILE: "/nowhere/at/all"},
        {KEY_FILE: "relative"},
        {KEY_FILE: "/dev/null"},
    ],
)
def test_a_key_that_cannot_be_used_is_one_sentence_without_it(environment: dict[str, str]) -> None:
    with pytest.raises(WrongKey) as told:
        Keyring.from_environment(environment)

    message = str(told.value)
    assert KEY in message
    assert "\n" not in message
    assert not any(value in message for name, value in environment.items() if name == KEY)


def test_an_empty_variable_is_none() -> None:
    assert not Keyring.from_environment({KEY: "", KEY_FILE: ""})


def test_no_key_is_in_what_python_shows() -> None:
    assert NEW not in repr(ring(NEW))
    assert repr(base64.b64decode(NEW)) not in repr(ring(NEW))


# --- what travels through Temporal ---


async def test_a_payload_is_encrypted_after_it_was_compressed() -> None:
    converter = data_converter(ring(NEW))
    text = "night shift " * 20_000

    (payload,) = await converter.encode([text])

    assert payload.metadata == {"encoding": SEALED, KEY_ID: ring(NEW).ids[0].encode()}
    assert payload.ByteSize() < 5_000
    assert await converter.decode([payload], [str]) == [text]


@pytest.mark.parametrize("value", ["a short text", "x" * 3_000, {"a": 1}, None])
async def test_everything_is_encrypted_and_what_was_written_before_is_read(value: object) -> None:
    """Summaries and small values, too, which are left readable without a key."""
    converter = data_converter(ring(NEW))

    (sealed,) = await converter.encode([value])
    (plain,) = await DATA_CONVERTER.encode([value])

    assert sealed.metadata["encoding"] == SEALED
    assert await converter.decode([plain]) == await converter.decode([sealed]) == [value]


async def test_a_payload_of_an_old_key_is_read_after_the_change() -> None:
    (payload,) = await data_converter(ring(OLD)).encode(["before"])

    assert await data_converter(ring(NEW, OLD)).decode([payload]) == ["before"]
    for keys in Keyring(), ring(NEW):
        with pytest.raises(WrongKey, match=ring(OLD).ids[0]):
            await data_converter(keys).decode([payload])


async def test_messages_of_failures_are_encrypted_and_their_types_are_not() -> None:
    converter = data_converter(ring(NEW))
    failure = Failure()

    await converter.encode_failure(ApplicationError("canarymessage", "canarydetail", type="StoreError"), failure)

    assert b"canary" not in failure.SerializeToString()
    assert failure.application_failure_info.type == "StoreError"
    error = await converter.decode_failure(failure)
    assert isinstance(error, ApplicationError)
    assert (error.message, error.details) == ("canarymessage", ("canarydetail",))


def test_a_payload_that_only_says_so_is_refused() -> None:
    """Whoever forges one has no key."""
    from payloads import unsealed

    with pytest.raises(WrongKey):
        unsealed(Payload(metadata={"encoding": SEALED}, data=MARK + b"0" * 60), ring(NEW))


# --- the store ---


def sealed_store(place: str, *keys: str) -> Store:
    return open_store(place, ring(*keys))


async def objects_of(store: Store) -> dict[str, bytes]:
    paths = [str(each["path"]) async for batch in obstore.list(store.objects) for each in batch]
    return {path: bytes(await (await obstore.get_async(store.objects, path)).bytes_async()) for path in paths}


async def test_everything_in_a_store_is_encrypted_and_the_first_still_stands(place: str) -> None:
    store = sealed_store(place, NEW)
    ref = await store.put_artifact(b"canary answer")
    await store.put_manifest("run-1", {"run": "run-1", "word": "canary"})
    first = await store.record("run-1/a/1/b/intent-1", {"word": "canary"})

    again = await store.record("run-1/a/1/b/intent-1", {"word": "other"})

    assert (first, again) == (True, False)
    assert await store.artifact(ref) == b"canary answer"
    assert await store.put_artifact(b"canary answer") == ref
    assert (await store.recorded("run-1/a/1/b/intent-1")) == {"word": "canary"}
    assert await store.runs() == ["run-1"]
    found = await objects_of(store)
    assert len(found) == 3
    assert not [path for path, content in found.items() if b"canary" in content or not content.startswith(MARK)]
    with pytest.raises(WrongKey, match="no key is set here"):
        await open_store(place, Keyring()).artifact(ref)


async def test_a_store_from_before_is_read_on_and_one_that_is_encrypted_takes_nothing_plain(place: str) -> None:
    plain = open_store(place, Keyring())
    ref = await plain.put_artifact(b"from before")
    await plain.claim()
    old = sealed_store(place, OLD)
    await old.claim()
    after = await old.put_artifact(b"from after")

    for store in plain, sealed_store(place, NEW):
        with pytest.raises(WrongKey, match=ring(OLD).ids[0]):
            await store.claim()

    changed = sealed_store(place, NEW, OLD)
    await changed.claim()
    assert [await changed.artifact(each) for each in (ref, after)] == [b"from before", b"from after"]
    assert await changed.key_ids() == sorted(changed.keys.ids)


async def test_damage_of_what_is_encrypted_is_damage(tmp_path: Path) -> None:
    """It is told as any other, is not used, and is mended when the same content is written again."""
    store = sealed_store(str(tmp_path / "store"), NEW)
    ref = await store.put_artifact(b"an answer")
    (file,) = (path for path in (tmp_path / "store" / "artifacts").rglob("*") if path.is_file())
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    with pytest.raises(StoreError):
        await store.artifact(ref)

    await store.put_artifact(b"an answer")
    assert await store.artifact(ref) == b"an answer"


async def test_an_object_that_was_moved_to_another_place_does_not_open(tmp_path: Path) -> None:
    """Nobody can give a task the answer of another one."""
    store = sealed_store(str(tmp_path / "store"), NEW)
    for task in "a", "b":
        await store.record(f"run-1/{task}/1/x/completion", {"task": task})
    a, b = (tmp_path / "store" / f"ledger/run-1/{task}/1/x/completion.json" for task in ("a", "b"))
    b.write_bytes(a.read_bytes())

    with pytest.raises(StoreError):
        await store.recorded("run-1/b/1/x/completion")
