"""`--script`: read before anything starts, handed to a real simulator, for the requests of one plan."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from runtime import Mode
from simulator import Config, Simulator
from simulator.script import read_script
from terminal.outcome import Exit, Refusal
from terminal.scripts import check_simulated, follow_script, read_script_file

STARTER = "./starter.py --home /a/home"
ANSWERS = "config: {jitter: 0}\nrules:\n  - when: {task: scan}\n    then: {answer: as scripted}\n"


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(Config(ttft=0, tokens_per_second=0)) as simulator:
        yield simulator


async def answer(simulator: Simulator, plan: str) -> str:
    from activities.claude import Claude
    from activities.reading import AnswerReader
    from domain.briefing import Brief

    model = Claude(base_url=simulator.url, api_key="a-key", auth_token=None, simulated=True)
    heading: dict[str, JsonValue] = {"type": "text", "text": f"Task: scan\nPlan: {plan}\nAgent: writer@1"}
    brief = Brief(model="a-model", max_tokens=500, system="You are a writer.", content=(heading,))
    completion = await model.complete(brief, user="a-user", reader=AnswerReader())
    await model.close()
    return completion.text


def test_a_good_script_is_given_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(ANSWERS, "utf-8")

    assert read_script_file(file) == ANSWERS


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"rules: [{then: {fault: gremlin}}]", "rules.0.then: Value error, unknown fault 'gremlin'"),
        (b"rules:\n  - then: {answer: x\n", "not YAML: line 3, column 1"),
        (b"rules: [{when: {tsk: scan}, then: {}}]", "rules.0.when.tsk: Extra inputs are not permitted"),
        (b"config: {limits: {requests: 5}}", "config.limits: holds for the whole simulator, and not for one plan"),
        (b"- a list", "script: Input should be a valid dictionary"),
        (b"\xff\xfe", "not UTF-8 text (byte 0)"),
        (None, "No such file or directory"),
    ],
)
def test_a_mistake_is_told_with_the_name_of_the_file(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "bad.script.yaml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(Refusal) as refused:
        read_script_file(file)

    assert str(refused.value).startswith(f"{file}: {complaint}")
    assert refused.value.exit is Exit.WRONG


async def test_a_script_is_followed_for_the_plan_it_was_given_for(simulator: Simulator) -> None:
    await follow_script(simulator.url, "größe", ANSWERS, STARTER)

    assert await answer(simulator, "größe") == "as scripted"
    assert "[Simulated answer]" in await answer(simulator, "grösse")


async def test_the_environments_proxy_is_not_asked(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    await follow_script(simulator.url, "brief", ANSWERS, STARTER)

    assert await answer(simulator, "brief") == "as scripted"


async def test_what_only_the_simulator_can_see_is_told_in_its_words(simulator: Simulator) -> None:
    simulator.follow(read_script(ANSWERS), plan="brief")

    with pytest.raises(Refusal) as refused:
        await follow_script(simulator.url, "brief", "rules: [{when: {plan: another}, then: {answer: x}}]", STARTER)

    assert "rules.0.when.plan: 'another' in a script for the plan 'brief'" in str(refused.value)
    assert refused.value.exit is Exit.WRONG
    assert await answer(simulator, "brief") == "as scripted"


async def test_a_simulator_that_does_not_answer_is_named_with_the_remedy() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"  # nobody else gets it meanwhile, and nobody listens

        for address in (url, None):
            with pytest.raises(Refusal) as refused:
                await follow_script(address, "brief", ANSWERS, STARTER)

            assert f"See {STARTER} up." in str(refused.value)
            assert refused.value.exit is Exit.CANNOT


def test_a_live_run_takes_no_script() -> None:
    check_simulated(Mode.SIMULATED)

    with pytest.raises(Refusal) as refused:
        check_simulated(Mode.LIVE)

    assert "--simulate" in str(refused.value)
    assert refused.value.exit is Exit.WRONG
