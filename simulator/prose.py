"""Default answers: short, plausible, about what was asked, and plainly simulated. Input is never copied at length."""

from __future__ import annotations

import json
import random
import re
from itertools import groupby

from simulator.prompt import CHARACTERS_PER_TOKEN, Prompt

_HEADING = re.compile(r"^(Task|Plan|Agent|Type):")
_ROLE = re.compile(r"\bYou are (an? [^.,;:\n]{3,50})", re.IGNORECASE)
_PLACED = re.compile(r'<(?:result|summary-of-result) of="([^"]{1,80})"')
_SUMMARY_MARK = re.compile(r'\n(<summary mark="\w{12}">)\s*\Z')
_MISSING_LIST = re.compile(r'<missing-inputs [^\n]* mark="(\w+)">\n(.*?)\n</missing-inputs mark="\1">', re.DOTALL)
_MERGING = "This task makes one text of all its inputs."
_SOURCES = re.compile(r'<sources [^\n]* mark="(\w+)">\n(.*?)\n</sources mark="\1">', re.DOTALL)
_SOURCE_LINE = re.compile(r"^(\{.*\}),?$", re.MULTILINE)
_MISSING_ITEM = re.compile(r'^\{"task": "([^"\n]{1,80})"', re.MULTILINE)
_WORD = re.compile(r"[^\W\d_][\w-]{4,24}")
_PLAIN = re.compile(
    r"(about|above|after|again|answer|because|before|being|below|between|compare|could|describe|every|explain|findings"
    r"|first|given|gives|inputs?|might|missing|other|please|report|results|shall|should|state|summari[sz]e|their|there"
    r"|these|thing|those|through|under|using|where|which|while|whose|would|write)",
    re.IGNORECASE,
)

_BODY = (
    "The main point is {a}: most of what follows depends on it.",
    "Between {a} and {b} there is a clear order, and the first should be settled before the second.",
    "The strongest argument concerns {a}, the weakest concerns {b}.",
    "What is said about {a} holds up; what is said about {b} deserves a second look.",
    "Two things stand out: what happens with {a} today, and what {b} would cost.",
    "A short test of {a} would decide more than a longer discussion.",
    "If only one thing is kept from this, it should be the link between {a} and {b}.",
    "There is some risk in {b}, and it can be kept small by starting with {a}.",
    "The next step is modest: write down what is known of {a}, then check {b} against it.",
    "Most of the effort would go into {b}, and most of the value would come from {a}.",
)
_CLOSING = (
    "No model was asked for this; a live run would put its own findings here.",
    "This text stands in for a model's answer and is not advice.",
    "These sentences are made up by the simulator, so nothing should be decided on them.",
)


def plausible_text(prompt: Prompt, random: random.Random, tokens: int) -> str:
    """A few sentences of about so many tokens."""
    subject = _subject(prompt)
    phrases = _phrases(subject)
    random.shuffle(phrases)
    a, b = [*phrases, "the question", "the details"][:2]
    role = _ROLE.search(prompt.system)
    speaker = f"As {role.group(1)}, here is" if role else "Here is"
    sentences = [f"[Simulated answer] {speaker} a short view on {_quoted(subject)}."]
    if (sources := sources_to_merge(prompt)) is not None:
        sentences.append(f"It merges {_cited(sources, prompt)}.")
    elif given := list(dict.fromkeys([*prompt.titles, *_PLACED.findall("\n".join(prompt.texts))])):
        sentences.append(f"It draws on {_listed(given)}.")
    if missing := _missing(prompt):
        verb, pronoun = ("was", "it") if len(missing) == 1 else ("were", "them")
        sentences.append(f"{_listed(missing)} {verb} missing, so nothing here rests on {pronoun}.")
    closing = random.choice(_CLOSING)
    room = tokens * CHARACTERS_PER_TOKEN - len(closing)
    for template in random.sample(_BODY, 4):
        if len(" ".join(sentences)) + len(template) / 2 > room:
            break
        sentences.append(template.format(a=a, b=b))
    return " ".join([*sentences, closing])


def summary_mark(prompt: Prompt) -> str | None:
    """The line that the prompt wants between an answer and its summary: the last one of all that is asked."""
    asked = _SUMMARY_MARK.search(prompt.texts[-1]) if prompt.texts else None
    return asked.group(1) if asked else None


def made_up_summary(prompt: Prompt, random: random.Random) -> str:
    """A sentence or two on what was asked."""
    return f"[Simulated summary] In short, on {_quoted(_subject(prompt))}: {sentence_of(prompt, random)}"


def phrases_of(prompt: Prompt) -> list[str]:
    """What the prompt is about, in a few phrases: one at least."""
    return [*_phrases(_subject(prompt)), "the question", "the details"]


def sentence_of(prompt: Prompt, random: random.Random) -> str:
    """A sentence on what was asked."""
    a, b = phrases_of(prompt)[:2]
    return random.choice(_BODY).format(a=a, b=b)


def text_of_size(characters: int, random: random.Random) -> str:
    """ASCII text of exactly this size."""
    sentence = "[Simulated answer] "
    parts, size = list[str](), 0
    while size < characters:
        parts.append(sentence)
        size += len(sentence)
        sentence = random.choice(_BODY).format(a="the first part", b="the second part") + " "
    return "".join(parts)[:characters]


def _subject(prompt: Prompt) -> str:
    """The first words of what is asked: of the last text, since the first may be a heading."""
    for text in reversed(prompt.texts):
        for line in text.splitlines():
            plain = " ".join(line.strip(" #*->\t").split())
            if plain and not _HEADING.match(plain) and not plain.startswith(("<", "[")):
                return re.split(r"(?<=[.?!])\s", plain, maxsplit=1)[0]
    return "this task"


def _phrases(subject: str) -> list[str]:
    """Neighbouring words that carry meaning, as phrases of up to three."""
    words = [word.strip(".,;:?!()\"'") for word in subject[:400].split()]
    runs = groupby(words, key=lambda word: bool(_WORD.fullmatch(word)) and not _PLAIN.fullmatch(word))
    return list(dict.fromkeys(" ".join(list(run)[:3]) for telling, run in runs if telling))[:4]


def _quoted(subject: str) -> str:
    words = subject[:80].split()
    shown = " ".join(words[:12]).rstrip(".?!,;: ")
    return f'"{shown} ..."' if len(shown) < len(subject.rstrip(".?!,;: ")) else f'"{shown}"'


def _missing(prompt: Prompt) -> list[str]:
    lists = [found.group(2) for text in prompt.texts for found in _MISSING_LIST.finditer(text)]
    return [name for lines in lists for name in _MISSING_ITEM.findall(lines)]


def sources_to_merge(prompt: Prompt) -> list[str] | None:
    """What a prompt asks to be merged: the documents themselves or, of texts that were merged, their sources."""
    last = prompt.texts[-1] if prompt.texts else ""
    if _MERGING not in last:
        return None
    texts = [_read(line) for found in _SOURCES.finditer(last) for line in _SOURCE_LINE.findall(found.group(2))]
    told = {str(text.get("text")): text.get("sources") for text in texts}
    missing = set(_missing(prompt))
    names = [name for title in prompt.titles for name in told.get(title) or [title]]
    return [name for name in dict.fromkeys(names) if name not in missing]


def _read(line: str) -> dict[str, list[str]]:
    """A line of a list in a prompt; what is none says nothing."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _cited(names: list[str], prompt: Prompt) -> str:
    """The names in brackets, as many as leave room for the rest of the answer."""
    room = prompt.max_tokens * CHARACTERS_PER_TOKEN * 3 // 4
    shown: list[str] = []
    for name in names:
        room -= len(name) + 4
        if room < 0:
            break
        shown.append(f"[{name}]")
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return f"{', '.join(shown)}{more}" if shown else f"{len(names)} sources"


def _listed(names: list[str]) -> str:
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names[:4]]
    if len(names) > 4:
        return f"{', '.join(shown)} and {len(names) - 4} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
