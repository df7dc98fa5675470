"""`agents register`, `enable`, `disable`, `retire`, `role`, `withdraw`, `grant`: people do something to an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

import embedded
from domain.admission import definition_of, definition_ref, last_act, told
from domain.models import Agent
from domain.problems import did_you_mean
from domain.register import Act, Register, Verb, Withdrawal
from domain.registry import Registry
from domain.rights import ANYTHING, Right
from registers import Registers
from store import Store, open_store
from terminal.outcome import Exit, Refusal, print_json
from terminal.person import person_here
from terminal.plans import read_registry
from terminal.roster import agent_named, agents_at
from terminal.session import Session
from terminal.steering import check_note
from terminal.text import plain

Data = dict[str, JsonValue]
Deed = tuple[Verb, str | None, Data]
"""An act that is due: what is done, to which version, with what."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for."""

    verb: str
    name: str
    note: str | None = None
    role: str = ""
    right: str = ""
    pattern: str = ANYTHING


async def register(session: Session, file: Path | None, note: str | None, *, as_json: bool) -> Exit:
    """Keep the definitions of a file. One that is registered otherwise is refused, and then nothing is written.

    Somebody else may register between the look and the word. The first definition stands, so who came second is told.
    """
    agents = read_registry(file).agents
    store = await _writable(session)
    registers = Registers(store)
    known = await registers.register()
    for agent in agents:
        definition = known.standing(agent.name, agent.version).definition
        if definition not in (None, definition_ref(agent)):
            message = f"{agent.label} is registered with another definition: give it a new version."
            raise Refusal(f"{message} Nothing was registered.", code="other_definition", exit=Exit.WRONG)
    new = [agent for agent in agents if known.standing(agent.name, agent.version).definition is None]
    second: list[str] = []
    for agent in new:
        ref = await store.put_artifact(definition_of(agent))
        data: Data = {"definition": ref, **_noted(note)}
        await registers.add(Verb.REGISTERED, agent.name, agent.version, by=person_here(), data=data)
        if (await registers.register()).standing(agent.name, agent.version).definition != ref:
            second.append(agent.label)
    if second:
        were = f"{', '.join(second)} {'was' if len(second) == 1 else 'were'} registered at the same moment"
        message = f"{were} with another definition, which stands: give it a new version."
        rest = " The others of the file are registered." if len(agents) > len(second) else ""
        raise Refusal(f"{message}{rest}", code="other_definition", exit=Exit.WRONG)
    labels, same = [agent.label for agent in new], [agent.label for agent in agents if agent not in new]
    if as_json:
        print_json({"schema": "nightcrew.registered/1", "registered": labels, "known": same})
        return Exit.DONE
    sys.stdout.write("".join(f"registered {label}\n" for label in labels))
    sys.stdout.write(f"{len(same)} known already\n" if same else "")
    return Exit.DONE


async def change(session: Session, file: Path | None, wish: Wish, *, as_json: bool) -> Exit:
    """Write down what a person does to an agent, and tell it."""
    in_file = read_registry(file)
    store = await _writable(session)
    registry = await agents_at(session.settings, in_file, live=False)
    agent = agent_named(registry, wish.name)
    one = "@" in wish.name
    affected = [agent] if one else [each for each in registry.all if each.name == agent.name]
    deeds = _deeds(wish, registry, affected, version=agent.version if one else None)
    registers = Registers(store)
    noted = _noted(wish.note)
    acts = [
        await registers.add(verb, agent.name, version, by=person_here(), data={**data, **noted})
        for verb, version, data in deeds
    ]
    _tell(wish, acts, as_json=as_json)
    return Exit.DONE


def _deeds(wish: Wish, registry: Registry, affected: list[Agent], version: str | None) -> list[Deed]:
    """The acts that a wish comes to: none when all is so already. What cannot be is refused."""
    register = registry.admission.register
    match wish.verb:
        case "enable" | "disable" | "retire":
            return list(_careers(wish, register, affected, version))
        case "role add" | "role remove":
            return _roles(wish, registry, affected, version)
        case "withdraw" | "grant":
            return _rights(wish, register, affected, version)
    raise Refusal("Say `role NAME add ROLE` or `role NAME remove ROLE`.", code="usage", exit=Exit.WRONG)


def _careers(wish: Wish, register: Register, affected: list[Agent], version: str | None) -> Iterator[Deed]:
    standings = {agent.label: register.of(agent) for agent in affected}
    retired = [agent for agent in affected if standings[agent.label].retired]
    if wish.verb == "retire":  # each version for itself: one that is yet to come is another
        yield from ((Verb.RETIRED, agent.version, {}) for agent in affected if agent not in retired)
        return
    if len(retired) == len(affected):
        act = last_act(register, retired[0], Verb.RETIRED)
        since = f" by {told(act)}" if act is not None else ""
        message = f"{wish.name} is retired{since}, for good. Give it a new version, and register that."
        raise Refusal(message, code="retired", exit=Exit.CANNOT)
    enabled = wish.verb == "enable"
    if any(standings[agent.label].enabled is not enabled for agent in affected if agent not in retired):
        yield Verb.ENABLED if enabled else Verb.DISABLED, version, {}


def _roles(wish: Wish, registry: Registry, affected: list[Agent], version: str | None) -> list[Deed]:
    register = registry.admission.register
    if wish.verb == "role add":
        role = next((role for role in registry.roles if role.name == wish.role), None)
        if role is None:
            names = [role.name for role in registry.roles]
            hint = did_you_mean(wish.role, names) or f"known: {', '.join(names) or 'none'}"
            raise Refusal(f"agents.yaml has no role {wish.role!r} ({hint}).", code="unknown_role", exit=Exit.WRONG)
        return [(Verb.ROLE_GIVEN, version, {"role": role.model_dump(mode="json")})]
    has = {role.name for agent in affected for role in (*agent.roles, *register.of(agent).roles)}
    taken = [wish.role in register.of(agent).taken for agent in affected]
    if wish.role not in has and not any(taken):
        message = f"{wish.name} has no role {wish.role!r}: it has {', '.join(sorted(has)) or 'none'}."
        raise Refusal(message, code="unknown_role", exit=Exit.WRONG)
    return [] if all(taken) else [(Verb.ROLE_TAKEN, version, {"role": wish.role})]


def _rights(wish: Wish, register: Register, affected: list[Agent], version: str | None) -> list[Deed]:
    rights = [right.value for right in Right]
    if wish.right not in (*rights, "all"):
        hint = did_you_mean(wish.right, [*rights, "all"]) or f"there are {', '.join(rights)} and all"
        raise Refusal(f"There is no right {wish.right!r} ({hint}).", code="usage", exit=Exit.WRONG)
    if wish.pattern != ANYTHING and wish.right in ("all", Right.BUDGET):
        raise Refusal(f"{wish.right!r} takes no pattern.", code="usage", exit=Exit.WRONG)
    meant = [Right(wish.right)] if wish.right != "all" else list(Right)
    there = {_key(found) for agent in affected for found in register.of(agent).withdrawn}
    if wish.verb == "grant":
        back = [key for key in sorted(there) if key[0] in meant and (wish.right == "all" or key[1] == wish.pattern)]
        if not back:
            lacks = ", ".join(f"{right} {pattern}" for right, pattern in sorted(there)) or "nothing"
            message = f"{wish.name}: {wish.right} {wish.pattern} is not withdrawn, so there is nothing to give back"
            raise Refusal(f"{message} (withdrawn: {lacks}).", code="not_withdrawn", exit=Exit.CANNOT)
        return [(Verb.GRANTED, version, {"right": right, "pattern": pattern}) for right, pattern in back]
    everywhere = [key for key in there if all(key in map(_key, register.of(agent).withdrawn) for agent in affected)]
    wanted = [(right, wish.pattern) for right in meant if (right, wish.pattern) not in everywhere]
    return [(Verb.WITHDRAWN, version, {"right": right, "pattern": pattern}) for right, pattern in wanted]


def _key(withdrawal: Withdrawal) -> tuple[Right, str]:
    return withdrawal.right, withdrawal.pattern


def _noted(note: str | None) -> Data:
    check_note(note)
    return {"note": note} if note else {}


async def _writable(session: Session) -> Store:
    """The store, made if need be: what is written here counts from now on."""
    embedded.prepare_home(session.settings.home)
    store = open_store(session.settings.store)
    await store.claim()
    return store


def _tell(wish: Wish, acts: list[Act], *, as_json: bool) -> None:
    if as_json:
        done = [act.model_dump(mode="json") for act in acts]
        print_json({"schema": "nightcrew.acts/1", "agent": wish.name, "did": wish.verb, "acts": done})
        return
    what = " ".join(filter(None, (wish.role, wish.right, wish.pattern if wish.right else "")))
    words = f"{wish.verb} {wish.name} {what}".rstrip()
    sys.stdout.write(f"{plain(words)}: {'done' if acts else 'it is so already, nothing was changed'}.\n")
