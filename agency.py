"""The agents as a home knows them: of a file, of the register, who may work, and what they have done."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from domain.admission import Admission
from domain.merit import Merits, RunRecord
from domain.models import Agent
from domain.register import Register, Verb
from domain.registry import Registry
from registers import Registers
from store import Store

RUNS = 500
"""Runs whose records count: agents change, and so do the models behind them. Older records are kept all the same."""


async def known_agents(
    store: Store, in_file: Registry, *, governed: bool = False, live: bool = False, by_record: bool = False
) -> Registry:
    """The registry of a file with all that the store knows of its agents, and of those that were in it once."""
    register = await Registers(store).register()
    return replace(
        in_file,
        earlier=await _earlier(store, register, in_file),
        admission=Admission(register, governed, live),
        merits=Merits(await records(store), simulated=not live) if by_record else None,
    )


async def definitions(store: Store) -> set[str]:
    """The references of all definitions that were ever registered: they stay, whatever else goes."""
    register = await Registers(store).register()
    acts = (act for name in register.agents for act in register.acts_of(name))
    return {str(act.data["definition"]) for act in acts if "definition" in act.data}


async def records(store: Store) -> list[RunRecord]:
    """What the agents of the last runs have done. One that is damaged says nothing."""
    found = []
    for content in await store.records_of_runs(RUNS):
        with suppress(ValueError):
            found.append(RunRecord.model_validate_json(content))
    return found


async def _earlier(store: Store, register: Register, in_file: Registry) -> tuple[Agent, ...]:
    """The definitions that were registered and are not in the file, the newest first."""
    there = {agent.label for agent in in_file.agents}
    known = [(name, version) for name in register.agents for version in register.versions(name)]
    refs = {
        f"{name}@{version}": ref
        for name, version in known
        if f"{name}@{version}" not in there and (ref := register.standing(name, version).definition)
    }
    found = [Agent.model_validate_json(content) for content in await store.artifacts([*refs.values()])]
    order = {label: number for number, label in enumerate(_by_age(register))}
    return tuple(sorted(found, key=lambda agent: order[agent.label], reverse=True))


def _by_age(register: Register) -> list[str]:
    """Names with versions in the order in which they were first registered."""
    acts = (act for name in register.agents for act in register.acts_of(name) if act.verb is Verb.REGISTERED)
    return list(dict.fromkeys(f"{act.agent}@{act.version}" for act in sorted(acts, key=lambda act: act.number)))
