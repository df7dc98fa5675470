"""Two workers of one account that are set otherwise: the second does not begin, and says what to do."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from conftest import eventually
from processes import Home, home_at
from temporalio.client import Client

import agreement
from activities.contract import quota_queue
from agreement import agree, tag
from domain.quota.terms import TIERS, Limits, Terms
from pollers import Poller, pollers_on
from runtime import CannotDo, Mode, Settings, connect, queue_of


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_at(tmp_path / "home") as home:
        yield home


async def is_seen(home: Home) -> None:
    """Until Temporal has heard that a worker is there, which is a moment after it has begun."""
    client = await connect(home.settings)

    async def said() -> bool:
        return any(poller.tag for poller in await pollers_on(client, quota_queue(queue_of(Mode.SIMULATED))))

    await eventually(said)


async def test_who_comes_second_with_other_settings_does_not_begin(home: Home) -> None:
    async with home.worker(NIGHTCREW_HEADROOM="0.1") as first:
        await is_seen(home)

        refused = await home.run_worker("--region", "eu", NIGHTCREW_HEADROOM="0.2")

        assert refused.code == 1
        assert refused.stderr.startswith(f"The worker {first.process.pid}@")
        assert "(default) with other settings: tier, limits, headroom, daily_usd and governed" in refused.stderr
        assert "Traceback" not in refused.stderr
        async with home.worker(), home.worker(NIGHTCREW_HEADROOM="0.2", NIGHTCREW_ACCOUNT="other"):
            pass  # the same settings, and another account with a quota of its own
        async with home.worker("--anyway", NIGHTCREW_HEADROOM="0.2"):
            pass


@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGKILL])
async def test_a_worker_that_has_gone_hinders_nobody(home: Home, order: signal.Signals) -> None:
    async with home.worker(NIGHTCREW_GOVERNED="true") as first:
        await is_seen(home)
        await first.end(order)

        async with home.worker():
            pass


@pytest.mark.parametrize(
    ("more", "alike"),
    [
        ({"headroom": 0.1}, True),
        ({"limits": "auto"}, True),
        ({"daily_usd": Decimal("5.00")}, False),
        ({"headroom": 0.2}, False),
        ({"tier": 1}, False),
        ({"tier": 1, "limits": "auto"}, True),
        ({"limits": {}}, True),
        ({"limits": {"default": {"requests": 50}}}, False),
        ({"governed": True}, False),
        ({"account": "other"}, False),
        ({"max_calls": 3}, True),
        ({"reserve_mb": 1}, True),
    ],
)
def test_what_must_be_alike(tmp_path: Path, more: dict[str, Any], alike: bool) -> None:
    """Not what one worker may have for itself: calls at once, room on its disk."""
    plain = Settings(home=tmp_path)

    assert (tag(Settings(home=tmp_path, **more)) == tag(plain)) == alike


def test_a_sum_of_money_is_one_sum_however_it_is_written(tmp_path: Path) -> None:
    five = [tag(Settings(home=tmp_path, daily_usd=Decimal(said))) for said in ("5", "5.00")]

    assert five[0] == five[1]


def test_limits_go_before_those_of_a_tier(tmp_path: Path) -> None:
    """The tier then says nothing but how many tasks at once a plan has by default, and that is read at submit."""
    limits: dict[str, Any] = {"default": {"requests": 50}}

    assert tag(Settings(home=tmp_path, tier=1, limits=limits)) == tag(Settings(home=tmp_path, limits=limits))


class LaterLimits(Limits):
    """As a later release may have them."""

    images: int | None = None
    steady: bool = True


class LaterTerms(Terms):
    """The same of what the meter is told."""

    weekly: int = 0


class LaterSettings(Settings):
    """The same of all that may be set."""

    limits: Literal["auto"] | dict[str, LaterLimits] | None = None  # type: ignore[assignment]


def test_a_release_that_knows_more_or_better_is_set_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else workers could not be replaced one by one, though nobody has set anything otherwise."""
    given: list[dict[str, Any]] = [{"tier": 1}, {"limits": {"default": {"requests": 50, "burst": 0.5}}}]
    before = [tag(Settings(home=tmp_path, **said)) for said in given]

    monkeypatch.setitem(TIERS, 1, TIERS[1].model_copy(update={"limits": {"default": Limits(requests=60)}}))
    monkeypatch.setattr("runtime.Terms", LaterTerms)

    assert [tag(LaterSettings(home=tmp_path, **said)) for said in given] == before


@pytest.mark.parametrize(
    ("said", "agrees"),
    [
        ("", True),
        ("{own}", True),
        ("{account}.{format}.00000000", False),
        ("{account}.{later}.00000000", True),
        ("{account}.00000000", True),
        ("other.{format}.00000000", True),
    ],
    ids=["a release that says nothing", "alike", "otherwise", "another format", "no format", "another account"],
)
async def test_hashes_are_compared_within_an_account_and_a_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, agrees: bool
) -> None:
    settings = Settings(home=tmp_path)
    account, format, _ = (own := tag(settings)).split(".")
    there = said.format(own=own, account=account, format=format, later=int(format) + 1)

    async def found(*_: Any) -> list[Poller]:
        return [Poller("7@elsewhere", datetime.now(UTC), None, there)]

    monkeypatch.setattr(agreement, "pollers_on", found)

    if agrees:
        await agree(cast("Client", None), "nightcrew", settings)
    else:
        with pytest.raises(CannotDo, match="7@elsewhere"):
            await agree(cast("Client", None), "nightcrew", settings)
