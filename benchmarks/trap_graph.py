"""The fan-out on LangGraph, with its own `max_concurrency`. It is optional: `pip install --group trap`."""

from __future__ import annotations

import operator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Protocol, TypedDict

from domain.models import Task


class Doer(Protocol):
    """Who does the tasks."""

    tasks: list[Task]

    async def do(self, task: Task) -> None:
        """One task of the fan-out."""

    async def synthesise(self) -> None:
        """The last task."""


class State(TypedDict):
    """What LangGraph carries from node to node."""

    done: Annotated[list[str], operator.add]


def langgraph_version() -> str | None:
    """The version that is installed, if any."""
    try:
        return version("langgraph")
    except PackageNotFoundError:
        return None


def load_langgraph() -> tuple[Any, Any]:
    """Its modules, by name: without them the other arms still run. To load them takes a second that is not measured."""
    return import_module("langgraph.graph"), import_module("langgraph.types")


async def on_langgraph(doer: Doer, size: int) -> None:
    """A node that is sent to once for each task, and a node that gathers."""
    graph, types = load_langgraph()

    def fan_out(_: State) -> list[Any]:
        return [types.Send("work", task) for task in doer.tasks]

    async def work(task: Task) -> State:
        await doer.do(task)
        return {"done": [task.id]}

    async def gather(_: State) -> State:
        await doer.synthesise()
        return {"done": []}

    built = graph.StateGraph(State)
    built.add_node("work", work)
    built.add_node("gather", gather)
    built.add_conditional_edges(graph.START, fan_out, ["work"])
    built.add_edge("work", "gather")
    built.add_edge("gather", graph.END)
    await built.compile().ainvoke({"done": []}, {"max_concurrency": size})
