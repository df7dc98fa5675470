"""Start-up shared by every process: settings, modes, credentials, and the one way to reach Temporal.

Heavy imports are inside the functions that need them: `starter.py --help` must answer at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import os
import re
import sys
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from domain.quota.terms import HEADROOM, TIERS, Limits, Terms
from telemetry import exporting, logs

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfigProfile
    from temporalio.runtime import Runtime

ROOT = Path(__file__).resolve().parent
SETTINGS_FILE = "nightcrew.toml"
CONNECT_TIMEOUT = timedelta(seconds=10)
PROVIDER = "https://api.anthropic.com"
ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

configure_logs = logs.configure_logs


BUILD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class CannotDo(Exception):
    """Something a person must mend. The message is one readable paragraph with the remedy; the exit code is 1."""


class Mode(StrEnum):
    """Whether a run asks the simulator or a real provider. Decided at submit, and never changed."""

    SIMULATED = "simulated"
    LIVE = "live"


REGION_VARIABLE = "NIGHTCREW_REGION"
"""The region of a worker that is not told one by `--region`: for containers. It is no setting of a home."""


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

    @property
    def address(self) -> str:
        """Who is asked and paid, as every screen of a live run says it: the host alone, without what a URL may hide."""
        parts = urlsplit(self.base_url or PROVIDER)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "?"


class Settings(BaseSettings):
    """What a person may set: `NIGHTCREW_<KEY>` in the environment, or the key in the home's `nightcrew.toml`."""

    model_config = SettingsConfigDict(env_prefix="NIGHTCREW_", env_ignore_empty=True, extra="forbid", frozen=True)

    home: Path
    store: str = Field(default_factory=lambda known: str(known["home"] / "store"))
    simulator_url: str | None = Field(default=None, pattern=r"^https?://[^/]+")
    web_ui: str | None = Field(default=None, pattern=r"^https?://[^/]+")
    """Where the Web UI of a Temporal that is not this home's own can be opened."""
    max_calls: int | None = Field(default=None, ge=1)
    """Calls that one worker process has under way at most, of all runs together."""
    build_id: str | None = Field(default=None, pattern=BUILD)
    """The version of a worker on a Temporal that several versions share: runs stay with the one they began on."""
    reserve_mb: int = Field(default=200, ge=0)
    """Megabytes that must be free on the disk of a store in a folder: below them no call is made that costs money."""
    account: str = "default"
    """A name for whose limits count: all workers with the same name share them. Never derived from a key."""
    tier: Literal[1, 2] | None = None
    """The account's step in the provider's price list: it gives limits, and how many tasks at once make sense."""
    limits: Literal["auto"] | dict[str, Limits] | None = None
    """What a minute allows, by class of models; `auto`: learned from the provider's answers."""
    headroom: float = Field(default=HEADROOM, ge=0, lt=1)
    """The part of every limit that is left unused."""
    ask_above_usd: Decimal = Field(default=Decimal("0.50"), ge=0, le=1_000_000)
    """What a live run without a budget may likely cost without anybody being asked."""
    daily_usd: Decimal | None = Field(default=None, gt=0, le=1_000_000)
    """What all calls of the account may cost on one day, UTC, in all runs and workers of one mode."""
    governed: bool = False
    """Whether only agents that are registered, onboarded and enabled are given work, and no plan brings its own."""
    route_by: Literal["file", "record"] = "file"
    """Who of several agents that fit equally well is chosen: the first in the file, or the better by what they did."""

    @field_validator("account")
    @classmethod
    def _part_of_a_workflow_id(cls, account: str) -> str:
        if not ACCOUNT.fullmatch(account):
            raise ValueError("must be a name of letters, digits, - and _, at most 64")
        return account

    @field_validator("limits", mode="before")
    @classmethod
    def _auto_or_a_table(cls, limits: object) -> object:
        if limits is not None and limits != "auto" and not isinstance(limits, dict):
            raise ValueError('must be "auto", or a table for each class of models, as [limits.default]')
        tables = limits if isinstance(limits, dict) else {}
        if strays := [name for name, table in tables.items() if not isinstance(table, dict)]:
            raise ValueError(f"has a table for each class of models, as [limits.default], and {strays[0]!r} is none")
        return limits

    @field_validator("tier", mode="before")
    @classmethod
    def _as_a_variable_has_it(cls, tier: object) -> object:
        return int(tier) if isinstance(tier, str) and tier.isdigit() else tier

    @property
    def terms(self) -> Terms:
        """What the meter is told: limits as they are set, else those of the tier, else none, and they are learned."""
        if isinstance(self.limits, dict):
            return Terms(headroom=self.headroom, limits=self.limits, daily=self.daily_usd)
        known = TIERS[self.tier].limits if self.tier is not None and self.limits is None else {}
        return Terms(headroom=self.headroom, limits=known, daily=self.daily_usd)

    @property
    def concurrency(self) -> int | None:
        """How many tasks at once a plan has that does not say: the tier's number, if there is a tier."""
        return None if self.tier is None else TIERS[self.tier].concurrency

    @field_validator("store")
    @classmethod
    def _same_place_for_every_process(cls, store: str) -> str:
        if "://" in store or Path(store).is_absolute():
            return store
        raise ValueError("must be an absolute path or a URL: every process of the home must find the same place")


def default_home() -> Path:
    """The home when none is named: `NIGHTCREW_HOME`, else `.nightcrew` beside `starter.py`."""
    return Path(os.environ.get("NIGHTCREW_HOME") or ROOT / ".nightcrew").expanduser().resolve()


def load_settings(home: Path | None = None) -> Settings:
    """The settings of a home: `home`, else `NIGHTCREW_HOME`, else `.nightcrew` beside `starter.py`."""
    place = home.expanduser().resolve() if home else default_home()
    file = place / SETTINGS_FILE
    in_file = _read_settings(file)
    in_environment = {key for key in Settings.model_fields if os.environ.get(f"NIGHTCREW_{key.upper()}")}
    try:
        return Settings(home=place, **{key: in_file[key] for key in in_file.keys() - in_environment})
    except ValidationError as error:
        raise CannotDo(_mistake(error, file, in_environment)) from None


def _mistake(error: ValidationError, file: Path, in_environment: Collection[str]) -> str:
    """The mistake in the settings that is named most exactly: its place, what is wrong, and what stands there."""
    found = max(error.errors(), key=lambda each: len(each["loc"]))
    key, *inside = (str(part) for part in found["loc"])
    path = ".".join((key, *inside[1:]))  # the first after a key that has parts is what the value was taken for
    source = f"NIGHTCREW_{key.upper()}" if key in in_environment else f"{path!r} in {file}"
    source += f", {path!r} in it," if key in in_environment and path != key else ""
    if found["type"] == "extra_forbidden":
        return f"{source} is unknown. {_near(inside[-1], Limits.model_fields)}"
    what = found["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    form = ' A variable has tables as JSON: {"default": {"requests": 50}}.' if source == "NIGHTCREW_LIMITS" else ""
    return f"{source} cannot be used: {what}. It is {found['input']!r}.{form}"


def _near(key: str, known: Collection[str]) -> str:
    """What may have been meant."""
    near = difflib.get_close_matches(key, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."


def sources_of(home: Path | None = None) -> dict[str, str]:
    """Where each setting of a home comes from: an option, a variable, the settings file, or nowhere but here."""
    place = load_settings(home).home
    in_file = _read_settings(place / SETTINGS_FILE)
    sources = {}
    for key in Settings.model_fields:
        variable = f"NIGHTCREW_{key.upper()}"
        found = variable if os.environ.get(variable) else SETTINGS_FILE if key in in_file else "default"
        sources[key] = "--home" if key == "home" and home is not None else found
    return sources


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
        raise CannotDo(f"{file} has an unknown key {key!r}. {_near(key, known)}")
    return found


def private_umask() -> None:
    """Make every file this process creates readable by its owner alone: prompts and answers are in them."""
    os.umask(0o077)


def leave(code: int) -> NoReturn:
    """End this process with exactly this code, everything written and, within a bounded time, exported.

    After a Temporal client was used, the normal end of the interpreter aborts one time in four (SIGABRT or
    SIGSEGV, in a thread of the SDK), and the exit code is what scripts rely on.
    """
    exporting.finish()
    logging.shutdown()
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not change the code
            stream.flush()
    os._exit(code)


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


async def connect(settings: Settings, *, traced: bool = True, identity: str | None = None) -> Client:
    """A client of the configured Temporal, or of this home's own server; never of one that happens to listen.

    It traces what it does when this process exports traces, unless it is for what is asked several times a second. The
    `identity` is what Temporal calls it; the SDK's is process and machine.
    """
    from embedded import find_server  # noqa: PLC0415 - embedded needs this module

    options: dict[str, Any] = {"plugins": exporting.plugins() if traced else [], "identity": identity}
    if configured := temporal_settings():
        try:
            return await dial(**configured.profile.to_client_connect_config(), **options)
        except (RuntimeError, OSError, ValueError) as error:
            raise CannotDo(
                f"Temporal at {configured.address} (set by {configured.source}) cannot be reached: {_reason(error)}. "
                "Start it or mend the setting; without Temporal settings this home's own server is used."
            ) from error
    if (server := find_server(settings.home)) is None:
        raise CannotDo(f"This home ({settings.home}) is not up. Run `./starter.py --home {settings.home} up`.")
    try:
        return await dial(server.address, **options)
    except (RuntimeError, OSError) as error:
        raise CannotDo(
            f"This home's server (pid {server.pid}, {server.address}) runs but does not answer: {_reason(error)}. "
            f"See {server.log}; `./starter.py --home {settings.home} down`, then `up`, starts it again."
        ) from error


async def dial(target_host: str, **options: Any) -> Client:
    """A client that speaks our payloads, or an error within a bounded time."""
    from temporalio.client import Client  # noqa: PLC0415

    from payloads import data_converter  # noqa: PLC0415
    from sealing import Keyring  # noqa: PLC0415

    converter = data_converter(Keyring.from_environment())
    async with asyncio.timeout(CONNECT_TIMEOUT.total_seconds()):
        return await Client.connect(target_host, data_converter=converter, runtime=core_runtime(), **options)


@cache
def core_runtime() -> Runtime:
    """The one runtime of this process. Its logs join ours; by default they would go to stdout, among the results.

    Its metrics join ours too, when this process exports metrics.
    """
    from temporalio.runtime import (  # noqa: PLC0415
        LogForwardingConfig,
        LoggingConfig,
        Runtime,
        TelemetryConfig,
        TelemetryFilter,
    )

    forwarding = LogForwardingConfig(
        logging.getLogger("temporalio.core"),
        append_target_to_name=False,
        append_log_fields_to_message=False,  # telemetry/logs.py picks those that hold no text of failures
    )
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    logging_config = LoggingConfig(levels, forwarding=forwarding)
    return Runtime(telemetry=TelemetryConfig(logging=logging_config, metrics=exporting.core_metrics()))


def _reason(error: Exception) -> str:
    """The error in a few words; a timeout has none of its own."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT.total_seconds():.0f} s"
    words = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    if "tonic::transport" not in words:
        return words
    # The SDK passes on how its own library spells the error; what the system said is in it.
    said = re.findall(r'message: "([^"]+)"', words)
    return said[-1].lower() if said else "no connection came about"
