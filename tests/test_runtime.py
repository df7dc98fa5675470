"""Start-up: settings with readable mistakes, logs that stay off stdout, and Temporal found where it was said to be."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from activities.contract import control_queue
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
        ('home = "/x"', "unknown key 'home'. Known keys: simulator_url, store."),
        ("store = ", "is not valid TOML"),
        ('store = "x"', "must be an absolute path or a URL"),
        ("store = 1", "'store' in"),
        ('simulator_url = "file:///x"', "'simulator_url' in"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "nightcrew.toml").write_text(text)

    with pytest.raises(CannotDo) as caught:
        load_settings(tmp_path)

    assert message in str(caught.value)
    assert str(tmp_path / "nightcrew.toml") in str(caught.value)


def test_a_mistake_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NIGHTCREW_STORE", "relative")

    with pytest.raises(CannotDo, match=r"^NIGHTCREW_STORE cannot be used"):
        load_settings(tmp_path)


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


async def test_without_settings_a_home_that_is_down_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match=r"is not up. Run `./starter.py --home .* up`"):
        await connect(load_settings(tmp_path))


async def test_a_configured_temporal_that_is_silent_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NOWHERE)
    began = time.monotonic()

    with pytest.raises(CannotDo, match=rf"{NOWHERE} \(set by TEMPORAL_ADDRESS\) cannot be reached"):
        await connect(load_settings(tmp_path))

    assert time.monotonic() - began < 8


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
"""


def test_logs_are_json_lines_on_stderr() -> None:
    """Libraries from WARNING on, whatever their own level; no local variable in a traceback."""
    done = subprocess.run([sys.executable, "-c", LOGGING], cwd=ROOT, capture_output=True, text=True, check=True)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("a warning", "warning"),
        ("run.started", "info"),
        ("failed", "error"),
    ]
    assert lines[1]["run"] == "r1"
    assert "ZeroDivisionError" in lines[2]["exception"]
    assert "prompt" not in done.stderr
    assert "secret" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("module", ["runtime", "embedded"])
def test_the_import_is_quick(module: str) -> None:
    code = f"import sys, {module}; assert not {{'temporalio', 'structlog', 'anthropic'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
