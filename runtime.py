"""Start-up shared by every process: settings, modes, credentials, logs, and the one way to reach Temporal.

Heavy imports are inside the functions that need them: `starter.py --help` must answer at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfigProfile
    from temporalio.runtime import Runtime

ROOT = Path(__file__).resolve().parent
SETTINGS_FILE = "nightcrew.toml"
CONNECT_TIMEOUT = timedelta(seconds=5)


class CannotDo(Exception):
    """Something a person must mend. The message is one readable paragraph with the remedy; the exit code is 1."""


class Mode(StrEnum):
    """Whether a run asks the simulator or a real provider. Decided at submit, and never changed."""

    SIMULATED = "simulated"
    LIVE = "live"


def queue_of(mode: Mode) -> str:
    """The task queue of workflows and agents: one per mode, so that no worker takes a task it cannot pay for."""
    return "nightcrew" if mode is Mode.LIVE else "nightcrew-simulated"


@dataclass(frozen=True)
class Credentials:
    """How to pay a provider. Secrets are not in the repr, so that no log or traceback shows them."""

    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    base_url: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Credentials | None:
        """The credentials that are set, if any. An empty variable counts as unset."""
        api_key = environment.get("ANTHROPIC_API_KEY") or None
        auth_token = environment.get("ANTHROPIC_AUTH_TOKEN") or None
        if api_key is None and auth_token is None:
            return None
        return cls(api_key, auth_token, environment.get("ANTHROPIC_BASE_URL") or None)


class Settings(BaseSettings):
    """What a person may set: `NIGHTCREW_<KEY>` in the environment, or the key in the home's `nightcrew.toml`."""

    model_config = SettingsConfigDict(env_prefix="NIGHTCREW_", env_ignore_empty=True, extra="forbid", frozen=True)

    home: Path
    store: str = Field(default_factory=lambda known: str(known["home"] / "store"))
    simulator_url: str | None = Field(default=None, pattern=r"^https?://[^/]+")

    @field_validator("store")
    @classmethod
    def _same_place_for_every_process(cls, store: str) -> str:
        if "://" in store or Path(store).is_absolute():
            return store
        raise ValueError("must be an absolute path or a URL: every process of the home must find the same place")


def load_settings(home: Path | None = None) -> Settings:
    """The settings of a home: `home`, else `NIGHTCREW_HOME`, else `.nightcrew` beside `starter.py`."""
    place = (home or Path(os.environ.get("NIGHTCREW_HOME") or ROOT / ".nightcrew")).expanduser().resolve()
    file = place / SETTINGS_FILE
    in_file = _read_settings(file)
    in_environment = {key for key in Settings.model_fields if os.environ.get(f"NIGHTCREW_{key.upper()}")}
    try:
        return Settings(home=place, **{key: in_file[key] for key in in_file.keys() - in_environment})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        source = f"NIGHTCREW_{key.upper()}" if key in in_environment else f"{key!r} in {file}"
        raise CannotDo(f"{source} cannot be used: {first['msg']}. It is {first['input']!r}.") from None


def _read_settings(file: Path) -> dict[str, Any]:
    """The keys of a settings file, none when there is no file; a key without effect is an error, never ignored."""
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CannotDo(f"{file} cannot be read: {error}. Mend or remove it.") from None
    except tomllib.TOMLDecodeError as error:
        raise CannotDo(f"{file} is not valid TOML: {error}. Mend that line, or remove the file.") from None
    known = sorted(Settings.model_fields.keys() - {"home"})
    for key in found.keys() - set(known):
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
        raise CannotDo(f"{file} has an unknown key {key!r}. {hint}")
    return found


def private_umask() -> None:
    """Make every file this process creates readable by its owner alone: prompts and answers are in them."""
    os.umask(0o077)


def leave(code: int) -> NoReturn:
    """End this process with exactly this code, everything written.

    After a Temporal client was used, the normal end of the interpreter aborts one time in four (SIGABRT or
    SIGSEGV, in a thread of the SDK), and the exit code is what scripts rely on.
    """
    logging.shutdown()
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not change the code
            stream.flush()
    os._exit(code)


def configure_logs(*, level: int = logging.INFO, file: Path | None = None) -> None:
    """Log to `file`, else to stderr: readable on a terminal, JSON lines otherwise. Stdout is for results alone.

    Libraries pass from WARNING on, whatever they are set to: the DEBUG log of a provider's SDK holds whole prompts.
    Tracebacks come without local variables for the same reason.
    """
    import structlog  # noqa: PLC0415 - see the top of the file
    from structlog.typing import Processor  # noqa: PLC0415

    stream = file.open("a", encoding="utf-8") if file else sys.stderr
    start: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    end: list[Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=not os.environ.get("NO_COLOR"), exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if stream.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*start, *end],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    libraries = logging.StreamHandler(stream)
    libraries.setLevel(logging.WARNING)
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*start, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *end],
        )
    )
    logging.basicConfig(handlers=[libraries], level=logging.WARNING, force=True)


@dataclass(frozen=True)
class TemporalSettings:
    """A Temporal that somebody configured, and where."""

    address: str
    source: str
    profile: ClientConfigProfile = field(repr=False)


def temporal_settings() -> TemporalSettings | None:
    """The Temporal that the standard variables or a profile file name; `None` when they say nothing at all.

    Whatever is said but cannot be followed is an error: work meant for a company's cluster must not
    land in an embedded server in silence. An empty variable counts as unset.
    """
    from temporalio.envconfig import ClientConfigProfile  # noqa: PLC0415

    variables = {name: value for name, value in os.environ.items() if value}
    file = Path(variables.get("TEMPORAL_CONFIG_FILE") or _profile_file())
    remedy = "Mend it, or unset every TEMPORAL_* variable to use this home's own server."
    if "TEMPORAL_CONFIG_FILE" in variables and not file.exists():
        raise CannotDo(f"TEMPORAL_CONFIG_FILE names {file}, which does not exist. {remedy}")
    source = f"profile {variables.get('TEMPORAL_PROFILE', 'default')!r} in {file}"
    try:
        profile = ClientConfigProfile.load(override_env_vars=variables)
    except RuntimeError as error:
        raise CannotDo(f"The Temporal settings ({source}) cannot be read: {error}. {remedy}") from None
    if profile == ClientConfigProfile():
        return None
    if not profile.address:
        raise CannotDo(f"There are Temporal settings (TEMPORAL_* or {source}) but no address. Set TEMPORAL_ADDRESS.")
    return TemporalSettings(profile.address, "TEMPORAL_ADDRESS" if "TEMPORAL_ADDRESS" in variables else source, profile)


def _profile_file() -> Path:
    """Where Temporal's own tools keep profiles."""
    configuration = "Library/Application Support" if sys.platform == "darwin" else ".config"
    base = os.environ.get("XDG_CONFIG_HOME") if sys.platform != "darwin" else None
    return Path(base or Path.home() / configuration) / "temporalio" / "temporal.toml"


async def connect(settings: Settings) -> Client:
    """A client of the configured Temporal, or of this home's own server; never of one that happens to listen."""
    from embedded import find_server  # noqa: PLC0415 - embedded needs this module

    if configured := temporal_settings():
        try:
            return await dial(**configured.profile.to_client_connect_config())
        except (RuntimeError, OSError, ValueError) as error:
            raise CannotDo(
                f"Temporal at {configured.address} (set by {configured.source}) cannot be reached: {_reason(error)}. "
                "Start it or mend the setting; without Temporal settings this home's own server is used."
            ) from error
    if (server := find_server(settings.home)) is None:
        raise CannotDo(f"This home ({settings.home}) is not up. Run `./starter.py --home {settings.home} up`.")
    try:
        return await dial(server.address)
    except (RuntimeError, OSError) as error:
        raise CannotDo(
            f"This home's server (pid {server.pid}, {server.address}) runs but does not answer: {_reason(error)}. "
            f"See {server.log}; `./starter.py --home {settings.home} down`, then `up`, starts it again."
        ) from error


async def dial(target_host: str, **options: Any) -> Client:
    """A client that speaks our payloads, or an error within a bounded time."""
    from temporalio.client import Client  # noqa: PLC0415

    from payloads import DATA_CONVERTER  # noqa: PLC0415

    async with asyncio.timeout(CONNECT_TIMEOUT.total_seconds()):
        return await Client.connect(target_host, data_converter=DATA_CONVERTER, runtime=core_runtime(), **options)


@cache
def core_runtime() -> Runtime:
    """The one runtime of this process. Its logs join ours; by default they would go to stdout, among the results."""
    from temporalio.runtime import (  # noqa: PLC0415
        LogForwardingConfig,
        LoggingConfig,
        Runtime,
        TelemetryConfig,
        TelemetryFilter,
    )

    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"), append_target_to_name=False)
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(levels, forwarding=forwarding)))


def _reason(error: Exception) -> str:
    """The error in a few words; a timeout has none of its own."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT.total_seconds():.0f} s"
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
