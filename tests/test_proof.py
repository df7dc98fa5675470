"""The crash proof in its short form, and that it would find a worker that is really broken."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from proof.campaign import SOME_POINTS
from proof.faults import KILLS, KINDS
from proof.link import Link
from proof.page import table
from proof.rounds import Round, Strike, Tally, at_every_boundary, at_random, fight, in_rounds
from proof.soak import Sample, leak, leaks, slope
from runtime import ROOT

STUMBLES = """
from activities.keeping import Keeper
from activities.ledger import Ledger

keep, stumbled = Keeper.keep, set()


async def keep_and_stumble(self, attempt, landed):
    stands = await keep(self, attempt, landed)
    if attempt.entry.key in stumbled:
        return stands
    stumbled.add(attempt.entry.key)
    raise RuntimeError


Keeper.keep = keep_and_stumble
"""
"""As sitecustomize.py of a worker: every first attempt breaks off when its answer is kept."""

FORGETS = """

async def landed(self, entry):
    return None


Ledger.landed = landed
"""
"""And it never finds what was paid for before."""


@pytest.mark.timeout(900)  # on a machine that has much else to do, each kill takes half a minute
def test_ten_kills_break_nothing() -> None:
    """Of worker, server and both, at points that the seed decides, and one worker that stays away."""
    command = [sys.executable, "-m", "proof", "--short", "--seed", "7"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    rows = {row[0]: row for line in done.stdout.splitlines() if (row := line.strip("| ").split(" | "))}
    assert {"`kills`", "`stall`", "together"} <= rows.keys()
    faults, runs, tasks, paid, repeated, broken = (int(figure.replace(",", "")) for figure in rows["`kills`"][2:])
    assert faults >= 8  # a run may have fewer events than a point was chosen for
    assert (runs, broken) == (12, 0)
    assert tasks > 60
    assert paid >= tasks // 2
    assert repeated <= 6 * faults


@pytest.mark.parametrize("broken", ["V5", None])
async def test_a_worker_without_a_ledger_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str | None
) -> None:
    """It pays again, and what is left of its home is kept; one that does the same with its ledger does not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(STUMBLES + (FORGETS if broken else ""), "utf-8")

    tally = await fight(Round("reset", (Strike("reset", "run:3"),)), 3, {"PYTHONPATH": f"{tmp_path}:{ROOT}"})

    assert {violation["invariant"] for violation in tally.violations} == ({broken} if broken else set())
    assert {violation["again"] for violation in tally.violations} <= {
        "python -m proof --seed 3 --fault reset --at run:3"
    }
    assert tally.counts["repeated"] == (2 if broken else 0)
    left = [*tmp_path.glob("nightcrew-proof-*/note.json")]
    assert len(left) == (1 if broken else 0)
    assert ("What is left" in capsys.readouterr().err) is bool(broken)


def test_every_boundary_is_struck_once_by_each_kind() -> None:
    strikes = [strike for kind in KILLS for strike in at_every_boundary(kind, SOME_POINTS)]

    rounds = in_rounds(strikes)

    assert len(strikes) == len({*strikes}) == 3 * sum(SOME_POINTS.values())
    assert sorted(strike.at for each in rounds for strike in each.strikes) == sorted(strike.at for strike in strikes)
    assert {each.label for each in rounds} == {*KILLS}
    assert all({strike.kind for strike in each.strikes} == {each.label} for each in rounds)


def test_a_seed_decides_every_moment() -> None:
    assert at_random("reset", 5, 1) == at_random("reset", 5, 1) != at_random("reset", 5, 2)


def test_a_round_is_done_again_by_its_commands() -> None:
    mixed = Round(
        "kills", (Strike("reset", "run:1"), Strike("kill-both", "after:2", "large"), Strike("reset", "call:2"))
    )

    assert mixed.again(4).split("; ") == [
        "python -m proof --seed 4 --fault reset --at run:1,call:2",
        "python -m proof --seed 4 --fault kill-both --at after:2 --plan large",
    ]


def test_a_command_that_was_printed_is_understood() -> None:
    """By the same program, up to the homes that it would start."""
    words = Strike("kill-both", "after:2", "large").again(4).split()[1:]

    done = subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert all(kind in done.stdout for kind in KINDS)


def test_the_table_adds_up_and_says_what_was_not_done() -> None:
    tallies = {
        "kill-worker": Tally(),
        "full-store": Tally(skipped="mount is not permitted here"),
    }
    tallies["kill-worker"].counts.update(faults=3, kills=3, runs=4, tasks=1200, paid=1300, repeated=2)
    tallies["kill-worker"].violations.append({"invariant": "V1"})

    lines = table(tallies).splitlines()

    assert lines[2].endswith("| 3 | 4 | 1,200 | 1,300 | 2 | 1 |")
    assert "not done: mount is not permitted here" in lines[3]
    assert lines[4] == "| together | 3 kills among them | 3 | 4 | 1,200 | 1,300 | 2 | 1 |"
    assert len({len(re.findall(r"\|", line)) for line in lines}) == 1


def test_a_leak_is_told() -> None:
    samples = [Sample(hours / 10, 200 + hours / 5, 40, 3.0) for hours in range(100)]

    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope([]) == slope([(1.0, 2.0)]) == 0.0
    assert "+2.00 MB and +0.00 files an hour" in leak(samples)
    assert leak(samples[:2]).startswith("Nothing can be said")


@pytest.mark.parametrize(
    ("megabytes", "files", "hours", "found"),
    [
        (0.5, 0.0, 3.0, []),
        (2.0, 0.0, 3.0, ["rss_mb"]),
        (0.0, 1.0, 3.0, ["files"]),
        (2.0, 1.0, 3.0, ["rss_mb", "files"]),
        (2.0, 1.0, 1.0, []),
    ],
)
def test_a_leak_breaks_the_soak(megabytes: float, files: float, hours: float, found: list[str]) -> None:
    """A megabyte an hour, or a file every other: of a worker that was watched for long enough (K2)."""
    minutes = [minute / 60 for minute in range(int(60 * hours) + 20)]
    samples = [Sample(hour, 200 + megabytes * hour, int(40 + files * hour), 3.0) for hour in minutes]

    told = leaks(samples)

    assert [name for name in ("rss_mb", "files") if any(f" {name} an hour" in what for what in told)] == found


async def is_broken_off(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes any more, with a word of it or without."""
    try:
        return await reader.read(100) == b""
    except ConnectionError:
        return True


async def test_a_link_can_be_cut_mended_slow_and_broken_off() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = Link(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with link.serve() as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        link.cut()
        writer.write(b"held back")
        heard = asyncio.create_task(reader.read(100))
        await asyncio.wait([heard], timeout=0.2)
        assert not heard.done()

        link.mend()
        assert await heard == b"held back"

        link.slow(40)
        writer.write(b"bit by bit")
        assert b"bit by bit".startswith(first := await reader.read(9))
        assert first + await reader.readexactly(10 - len(first)) == b"bit by bit"

        link.reset()
        assert await is_broken_off(reader)
        writer.close()
        server.close()
        reader, writer = await asyncio.open_connection(*address.split(":"))
        assert await is_broken_off(reader), "nobody is behind it"
        writer.close()
