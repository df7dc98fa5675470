"""Two workers of one account that are set otherwise: the second does not begin, and says what to do."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from processes import Home, home_at

from activities.contract import quota_queue
from agreement import tag
from pollers import pollers_on
from runtime import Mode, Settings, connect, queue_of


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
