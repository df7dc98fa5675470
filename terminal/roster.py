"""The agents of a home: those of agents.yaml with what the store knows of them. Nothing is started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from agency import known_agents
from domain.admission import Admission
from domain.models import Agent
from domain.problems import did_you_mean
from domain.registry import Registry
from registers import Registers
from runtime import Settings
from store import folder_of, open_store
from terminal.outcome import Exit, Refusal, ended


def has_store(settings: Settings) -> bool:
    """Whether there is a store to ask: a folder that nobody has made yet knows nothing."""
    folder = folder_of(settings.store)
    return folder is None or folder.is_dir()


async def agents_at(settings: Settings, in_file: Registry, *, live: bool) -> Registry:
    """The agents as this home knows them."""
    if not has_store(settings):
        return replace(in_file, admission=Admission(governed=settings.governed, live=live))
    by_record = settings.route_by == "record"
    store = open_store(settings.store)
    return await known_agents(store, in_file, governed=settings.governed, live=live, by_record=by_record)


def registry_at(settings: Settings, in_file: Registry, *, live: bool) -> Registry:
    """The same, for whoever does not wait: a plan is read before anything else begins."""
    with ThreadPoolExecutor(1) as thread:  # whoever calls may have a loop of their own
        return thread.submit(asyncio.run, agents_at(settings, in_file, live=live)).result()


async def check_may_work(settings: Settings, agents: Iterable[Agent], *, live: bool) -> None:
    """Refuse agents that may not be given work any more, though a run before was given them."""
    register = await Registers(open_store(settings.store)).register()
    admission = Admission(register, settings.governed, live)
    for agent in agents:
        if (objection := admission.objection(agent)) is not None:
            message = f"{objection.message[0].upper()}{objection.message[1:]}: {objection.hint}. Nothing was started."
            raise Refusal(message, code="barred", exit=Exit.CANNOT)


def agent_named(registry: Registry, word: str) -> Agent:
    """The agent of this name, or of this name and version; a refusal when there is none."""
    if (agent := registry.get(word)) is not None:
        return agent
    name, _, version = word.partition("@")
    versions = [agent.version for agent in registry.all if agent.name == name]
    if version and versions:
        message = f"There is no version {version!r} of {name!r}: known are {', '.join(versions)}."
    else:
        hint = did_you_mean(name, [agent.name for agent in registry.all])
        known = f"{hint[0].upper()}{hint[1:]}" if hint else "`./starter.py agents` shows those there are"
        known += "; for one of a file of yours, say --agents FILE"
        message = f"There is no agent {word!r}. {ended(known)}"
    raise Refusal(message, code="unknown_agent", exit=Exit.WRONG)
