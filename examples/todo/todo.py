"""A to-do list in one file: `todo.py add TEXT`, `todo.py list`, `todo.py done NUMBER`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path.home() / ".todo.json"


@dataclass
class Item:
    """One thing to do."""

    text: str
    done: bool = False


def load(file: Path) -> list[Item]:
    """The items of a file; none when there is no file yet."""
    return [Item(**entry) for entry in json.loads(file.read_text("utf-8"))] if file.exists() else []


def save(file: Path, items: list[Item]) -> None:
    """Write all items."""
    file.write_text(json.dumps([asdict(item) for item in items], indent=2), "utf-8")


def main(words: list[str], file: Path = FILE) -> int:
    """Carry out one command; the exit code."""
    items = load(file)
    match words:
        case ["add", text]:
            items.append(Item(text))
        case ["done", number] if number.isdigit() and 1 <= int(number) <= len(items):
            items[int(number) - 1].done = True
        case ["list"]:
            for position, item in enumerate(items, start=1):
                sys.stdout.write(f"{position} [{'x' if item.done else ' '}] {item.text}\n")
        case _:
            sys.stderr.write("usage: todo.py add TEXT | list | done NUMBER\n")
            return 2
    save(file, items)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
