"""Start-up: settings with readable mistakes, logs that stay off stdout, and Temporal found where it was said to be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from activities.contract import control_queue
from domain.quota.terms import TIERS, Limits, Terms
from runtime import (
    ROOT,
    CannotDo,
    Credentials,
    Mode,
    connect,
    load_settings,
    queue_of,
    temporal_settings,
)

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing set, and no profile file of the person who runs the tests."""
    for name in os.environ:
        if name.startswith(("TEMPORAL_", "NIGHTCREW_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_home_has_defaults(tmp_path: Path) -> None:
    settings = load_settings(tmp_path / "home")

    assert settings.home == tmp_path / "home"
    assert settings.store == str(tmp_path / "home" / "store")
    assert settings.simulator_url is None
    assert load_settings().home == ROOT / ".nightcrew"


def test_the_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NIGHTCREW_HOME", str(tmp_path / "a"))

    assert load_settings().home == tmp_path / "a"
    assert load_settings(tmp_path / "b").home == tmp_path / "b"


def test_the_environment_goes_before_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nightcrew.toml").write_text('store = "/from/file"\nsimulator_url = "http://file"\n')
    monkeypatch.setenv("NIGHTCREW_STORE", "s3://bucket")
    monkeypatch.setenv("NIGHTCREW_SIMULATOR_URL", "")

    settings = load_settings(tmp_path)

    assert (settings.store, settings.simulator_url) == ("s3://bucket", "http://file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stor = "/x"', "unknown key 'stor'. Did you mean 'store'?"),
        (
            'home = "/x"',
            "unknown key 'home'. Known keys: account, ask_above_usd, build_id, daily_usd, governed, headroom, limits,",
        ),
        ("store = ", "is not valid TOML"),
        ('store = "x"', "must be an absolute path or a URL"),
        ("store = 1", "'store' in"),
        ('simulator_url = "file:///x"', "'simulator_url' in"),
        ("max_calls = 0", "'max_calls' in"),
        ("tier = 3", "must be 1 or 2. It is 3."),
        ("headroom = 1.5", "must be less than 1. It is 1.5."),
        ('account = "my team"', "must be a name of letters, digits, - and _, at most 64. It is 'my team'."),
        ('limits = "some"', "or a table for each class of models, as [limits.default]. It is 'some'."),
        ("[limits]\nrequests = 5", "as [limits.default], and 'requests' is none."),
        ("[limits.haiku]\nrequest = 5", "'limits.haiku.request' in"),
        ("[limits.haiku]\nrequest = 5", "is unknown. Did you mean 'requests'?"),
        ("[limits.haiku]\nwords = 5", "Known keys: requests, input_tokens, output_tokens, burst."),
        ("[limits.haiku]\nrequests = 0", "'limits.haiku.requests' in"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "nightcrew.toml").write_text(text)

    with pytest.raises(CannotDo) as caught:
        load_settings(tmp_path)

    assert message in str(caught.value)
    assert str(tmp_path / "nightcrew.toml") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("STORE", "relative", "NIGHTCREW_STORE cannot be used: must be an absolute path"),
        ("TIER", "3", "NIGHTCREW_TIER cannot be used: must be 1 or 2. It is 3."),
        ("TIER", "one", "NIGHTCREW_TIER cannot be used: must be 1 or 2. It is 'one'."),
        ("HEADROOM", "all", "NIGHTCREW_HEADROOM cannot be used: must be a valid number"),
        ("LIMITS", "some", 'A variable has tables as JSON: {"default": {"requests": 50}}.'),
        ("LIMITS", '{"default":', 'NIGHTCREW_LIMITS cannot be used: must be "auto", or a table'),
        ("LIMITS", '{"default": {"request": 5}}', "NIGHTCREW_LIMITS, 'limits.default.request' in it, is unknown."),
    ],
)
def test_a_mistake_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"NIGHTCREW_{name}", value)

    with pytest.raises(CannotDo) as caught:
        load_settings(tmp_path)

    assert message in str(caught.value)
    assert str(caught.value).startswith(f"NIGHTCREW_{name}")


LIMITS = {"default": Limits(requests=100), "haiku": Limits(input_tokens=2000, burst=0.5)}
TABLES = "[limits.default]\nrequests = 100\n[limits.haiku]\ninput_tokens = 2000\nburst = 0.5\n"


@pytest.mark.parametrize(
    ("text", "variables", "headroom", "limits", "concurrency"),
    [
        ("", {}, 0.1, {}, None),
        ("headroom = 0.25", {}, 0.25, {}, None),
        ("tier = 1", {}, 0.1, TIERS[1].limits, 4),
        ("tier = 1", {"NIGHTCREW_TIER": "2"}, 0.1, TIERS[2].limits, 8),
        ('tier = 2\nlimits = "auto"', {}, 0.1, {}, 8),
        (f"tier = 2\n{TABLES}", {}, 0.1, LIMITS, 8),
        (TABLES, {"NIGHTCREW_LIMITS": "auto"}, 0.1, {}, None),
        ("", {"NIGHTCREW_LIMITS": '{"default": {"requests": 100}}'}, 0.1, {"default": LIMITS["default"]}, None),
    ],
)
def test_what_the_meter_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    variables: dict[str, str],
    headroom: float,
    limits: dict[str, Limits],
    concurrency: int | None,
) -> None:
    """Limits as they are set, else those of the tier, else none, and they are learned; `auto` against the tier's."""
    (tmp_path / "nightcrew.toml").write_text(text)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    settings = load_settings(tmp_path)

    assert settings.terms == Terms(headroom=headroom, limits=limits)
    assert settings.concurrency == concurrency


def test_each_mode_has_its_queues() -> None:
    assert [(queue_of(mode), control_queue(queue_of(mode))) for mode in Mode] == [
        ("nightcrew-simulated", "nightcrew-simulated-control"),
        ("nightcrew", "nightcrew-control"),
    ]


def test_credentials_do_not_show() -> None:
    assert Credentials.from_environment({"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "https://x"}) is None

    credentials = Credentials.from_environment({"ANTHROPIC_AUTH_TOKEN": "secret", "ANTHROPIC_BASE_URL": "https://x"})

    assert credentials == Credentials(None, "secret", "https://x")
    assert repr(credentials) == "Credentials(base_url='https://x')"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (None, "api.anthropic.com"),
        ("https://ann:secret@gate.example/v1?key=secret", "gate.example"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
    ],
)
def test_who_is_paid_is_said_without_what_a_url_may_hide(url: str | None, address: str) -> None:
    assert Credentials("key", None, url).address == address


async def test_without_settings_a_home_that_is_down_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match=r"is not up. Run `./starter.py --home .* up`"):
        await connect(load_settings(tmp_path))


async def test_a_configured_temporal_that_is_silent_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NOWHERE)

    with pytest.raises(CannotDo, match=rf"{NOWHERE} \(set by TEMPORAL_ADDRESS\) cannot be reached") as told:
        await connect(load_settings(tmp_path))

    assert "tonic" not in str(told.value)


def test_a_profile_is_named_with_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config" / "temporalio" / "temporal.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[profile.default]\n[profile.work]\naddress = "{NOWHERE}"\napi_key = "secret"\n')
    assert temporal_settings() is None

    monkeypatch.setenv("TEMPORAL_PROFILE", "work")
    configured = temporal_settings()

    assert configured is not None
    assert (configured.address, configured.source) == (NOWHERE, f"profile 'work' in {file}")
    assert "secret" not in repr(configured)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TEMPORAL_PROFILE": "nope"}, "Profile 'nope' not found"),
        ({"TEMPORAL_NAMESPACE": "ours"}, "no address. Set TEMPORAL_ADDRESS"),
        ({"TEMPORAL_API_KEY": "k"}, "no address. Set TEMPORAL_ADDRESS"),
        ({"TEMPORAL_CONFIG_FILE": "/nowhere/temporal.toml"}, "/nowhere/temporal.toml, which does not exist"),
    ],
)
def test_half_a_setting_is_an_error(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str) -> None:
    """Work meant for somewhere else must not land in an embedded server."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(CannotDo, match=message):
        temporal_settings()


@pytest.mark.parametrize("variables", [{"TEMPORAL_ADDRESS": ""}, {"TEMPORAL_CONFIG_FILE": os.devnull}, {}])
def test_nothing_said_is_no_setting(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert temporal_settings() is None


LOGGING = """
import logging, structlog, sys
import runtime
runtime.configure_logs()
logging.getLogger("anthropic").setLevel(logging.DEBUG)
logging.getLogger("anthropic").debug("a prompt")
logging.getLogger("anthropic").info("a prompt")
logging.getLogger("temporalio.core").warning("a %s", "warning")
structlog.get_logger().info("run.started", run="r1")
key = "secret"
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("failed")
try:
    try:
        raise ValueError("a prompt")
    except ValueError as error:
        raise RuntimeError("a prompt") from error
except RuntimeError:
    logging.getLogger("library").exception("failed too: %s", sys.exc_info()[1])
"""

PRINTING = """
import asyncio, gc, threading, warnings
import runtime
runtime.configure_logs()

async def fail():
    raise ValueError("a prompt")

async def main():
    forgotten = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del forgotten
    gc.collect()

warnings.warn("a prompt", stacklevel=1)
asyncio.run(main())
thread = threading.Thread(target=lambda: {}["a prompt"])
thread.start()
thread.join()
raise RuntimeError("a prompt")
"""


def test_logs_are_json_lines_on_stderr() -> None:
    """Libraries from WARNING on, whatever their own level; of an error its types and places, and none of its words."""
    done = subprocess.run([sys.executable, "-c", LOGGING], cwd=ROOT, capture_output=True, text=True, check=True)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("a warning", "warning"),
        ("run.started", "info"),
        ("failed", "error"),
        ("failed too: RuntimeError", "error"),
    ]
    assert lines[1]["run"] == "r1"
    assert lines[2]["exception"].startswith("ZeroDivisionError < ")
    assert lines[3]["exception"].startswith("RuntimeError < ")
    assert "; caused by ValueError < " in lines[3]["exception"]
    assert "prompt" not in done.stderr
    assert "secret" not in done.stderr
    assert done.stdout == ""


def test_what_python_prints_becomes_lines_without_words() -> None:
    """Warnings, errors of tasks and threads that nobody asked about, and the one that ends the process."""
    done = subprocess.run([sys.executable, "-c", PRINTING], cwd=ROOT, capture_output=True, text=True, check=False)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "python_warning",
        "Task exception was never retrieved",
        "thread_crashed",
        "crashed",
    ]
    assert lines[0]["kind"] == "UserWarning"
    assert [line["exception"].partition(" ")[0] for line in lines[1:]] == ["ValueError", "KeyError", "RuntimeError"]
    assert "prompt" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("module", ["runtime", "embedded"])
def test_the_import_is_quick(module: str) -> None:
    heavy = {"temporalio", "structlog", "anthropic", "opentelemetry"}
    code = f"import sys, {module}; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
