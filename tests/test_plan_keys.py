"""Keys of a plan about order, time and people: what they become, what is refused, what is warned of."""

# ruff: noqa: E501  (a table of mistakes reads best with one mistake per line)

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planning import FILES, REGISTRY, DictFolder, mistakes, planned, tasks

from domain import deadlines
from domain.models import Approval, Deadline, Latency, Pace, Plan, Priority, Task
from domain.planning import plan_from_text
from domain.problems import Mistake

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def task(keys: str, *, top: str = "") -> Task:
    """The one task of a plan with these keys; its agent says a timeout of 60s."""
    (only,) = planned(f"{top}tasks:\n  - {{id: a, agent: writer, prompt: x{keys and ', '}{keys}}}\n").plan.tasks
    return only


# ---------------------------------------------------------------- what they become


def test_a_plan_that_says_nothing_of_them() -> None:
    result = planned("tasks: [{id: a, agent: idle, prompt: x}]")

    assert (result.plan.mode, result.plan.deadline) == (Pace.WINDOW, None)
    (only,) = result.plan.tasks
    assert (only.priority, only.deadline, only.time_limit) == (Priority.NORMAL, None, None)
    assert (only.approval, only.quorum) == (None, None)
    assert result.plan_sources == {"name": "file", "max_concurrency": "built in", "mode": "built in"}
    assert "deadline" not in result.sources["a"]


@pytest.mark.parametrize(
    ("keys", "name", "value"),
    [
        ("priority: high", "priority", Priority.HIGH),
        ("deadline: 6h", "deadline", 6 * HOUR),
        ("deadline: 14d", "deadline", timedelta(days=14)),
        ("time_limit: 14d", "time_limit", timedelta(days=14)),
        ("time_limit: 60s", "time_limit", timedelta(seconds=60)),
        ("approval: true", "approval", Approval()),
        ("approval: {}", "approval", Approval()),
        ("approval: false", "approval", None),
        (
            "approval: {ask: 'Pay?', expires: 12h, on_expiry: approve}",
            "approval",
            Approval(ask="Pay?", expires=12 * HOUR, on_expiry="approve"),
        ),
        ("approval: {expires: 12h}", "approval", Approval(expires=12 * HOUR, on_expiry="reject")),
    ],
)
def test_the_value_of_a_task(keys: str, name: str, value: object) -> None:
    assert getattr(task(keys), name) == value


@pytest.mark.parametrize(
    "written",
    [
        "2026-12-01T12:00:00Z",
        "'2026-12-01T12:00:00Z'",
        "2026-12-01T13:00:00+01:00",
        "2026-12-01t12:00:00.000z",
        "2026-12-01 06:30:00-05:30",
    ],
)
def test_a_time_needs_no_quotes_and_means_one_moment(written: str) -> None:
    assert task(f"deadline: {written}").deadline == NOON
    assert planned(f"tasks: [{{id: a, agent: idle, prompt: x}}]\ndeadline: {written}\n").plan.deadline == NOON


def test_a_value_of_the_task_goes_before_that_of_the_defaults() -> None:
    top = "defaults: {priority: low, deadline: 2h, time_limit: 1d, approval: {ask: 'Really?'}}\n"

    by_default, own = task("", top=top), task("priority: normal, deadline: 3h, time_limit: 2h, approval: true", top=top)

    assert (by_default.priority, by_default.deadline, by_default.time_limit) == (Priority.LOW, 2 * HOUR, 24 * HOUR)
    assert by_default.approval == Approval(ask="Really?")
    assert (own.priority, own.deadline, own.time_limit) == (Priority.NORMAL, 3 * HOUR, 2 * HOUR)
    assert own.approval == Approval()  # the whole value, not a mixture
    assert task("approval: false", top=top).approval is None


def test_where_the_values_come_from() -> None:
    result = planned(
        "mode: waves\ndeadline: 1d\ndefaults: {deadline: 2h, approval: true}\ntasks:\n"
        "  - {id: a, agent: idle, prompt: x, approval: false, time_limit: 1h}\n"
        "  - {id: b, agent: idle, prompt: x, priority: high, needs: {a: optional}, quorum: 1}\n"
    )

    keys = ("priority", "deadline", "time_limit", "approval", "quorum")
    assert {id: [sources.get(key) for key in keys] for id, sources in result.sources.items()} == {
        "a": ["built in", "defaults", "task", "task", None],
        "b": ["task", "defaults", None, "defaults", "task"],
    }
    assert result.plan_sources == {"name": "file", "max_concurrency": "built in", "mode": "plan", "deadline": "plan"}


def test_the_mode_that_is_asked_for_goes_before_that_of_the_plan() -> None:
    def mode(text: str, asked: Pace | None) -> tuple[Pace, str]:
        text = f"{text}tasks: [{{id: a, agent: idle, prompt: x}}]"
        result = plan_from_text(text, file="p", registry=REGISTRY, folder=DictFolder(FILES), mode=asked)
        return result.plan.mode, result.plan_sources["mode"]

    assert mode("mode: waves\n", None) == (Pace.WAVES, "plan")
    assert mode("mode: waves\n", Pace.WINDOW) == (Pace.WINDOW, "option")
    assert mode("", Pace.WAVES) == (Pace.WAVES, "option")


@pytest.mark.parametrize(
    ("written", "asked", "usual", "found"),
    [
        ("", None, None, (4, "built in")),
        ("", None, (8, "tier 2"), (8, "tier 2")),
        ("max_concurrency: 3\n", None, (8, "tier 2"), (3, "plan")),
        ("max_concurrency: 3\n", 5, (8, "tier 2"), (5, "option")),
    ],
)
def test_the_usual_concurrency_is_that_of_plans_that_say_nothing(
    written: str, asked: int | None, usual: tuple[int, str] | None, found: tuple[int, str]
) -> None:
    text = f"{written}tasks: [{{id: a, agent: idle, prompt: x}}]"
    folder = DictFolder(FILES)

    result = plan_from_text(text, file="p", registry=REGISTRY, folder=folder, max_concurrency=asked, usual=usual)

    assert (result.plan.max_concurrency, result.plan_sources["max_concurrency"]) == found


def test_who_may_take_a_day_is_said_by_the_task_its_defaults_or_the_plan() -> None:
    text = """latency: relaxed
defaults: {latency: %s}
tasks:
  - {id: a, agent: idle, prompt: x}
  - {id: b, agent: idle, prompt: x, latency: %s}
"""
    assert [task.latency for task in tasks(text % ("relaxed", "normal")).values()] == [Latency.RELAXED, Latency.NORMAL]
    assert [task.latency for task in tasks(text % ("normal", "relaxed")).values()] == [Latency.NORMAL, Latency.RELAXED]
    plain = planned("latency: relaxed\ntasks: [{id: a, agent: idle, prompt: x}]")
    assert (plain.plan.tasks[0].latency, plain.sources["a"]["latency"]) == (Latency.RELAXED, "plan")
    assert tasks("tasks: [{id: a, agent: idle, prompt: x}]")["a"].latency is Latency.NORMAL
    assert mistakes("tasks: [{id: a, agent: idle, prompt: x, latency: slow}]") == [
        "p:1:50: task 'a': 'latency' must be normal or relaxed, not the text 'slow'"
    ]


def test_a_question_is_filled_in_for_each_item() -> None:
    found = tasks(
        "params: {sum: {default: '100'}}\ntasks:\n  - {id: buy, for_each: [desk, lamp], agent: idle, prompt: x,\n"
        "     approval: {ask: 'Buy the {{ item }} for {{ params.sum }}?'}}\n"
    )

    assert [each.approval for each in found.values()] == [
        Approval(ask="Buy the desk for 100?"),
        Approval(ask="Buy the lamp for 100?"),
    ]


def test_a_fan_out_counts_once_per_item_for_the_quorum() -> None:
    text = """tasks:
  - {id: scan, for_each: [a, b, c], agent: idle, prompt: "{{ item }}"}
  - {id: extra, agent: idle, prompt: x}
  - {id: report, agent: idle, prompt: x, needs: {scan: optional, "scan[a]": require, extra: %s}, quorum: %d}
"""
    assert tasks(text % ("optional", 3))["report"].quorum == 3
    assert mistakes(text % ("tolerate", 3)) == [
        "p:4:112: task 'report': 'quorum' must be at most 2, the number of optional needs, not 3"
    ]


def test_a_plan_keeps_its_values_on_its_way_through_json() -> None:
    text = "mode: waves\ndeadline: 2026-12-01T12:00:00Z\ntasks: [{id: a, agent: idle, prompt: x, deadline: 6h, approval: {ask: 'Go?', expires: 1h}}]"
    plan = planned(text).plan

    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(
    st.timedeltas(timedelta(milliseconds=1), timedelta(days=14)).map(lambda t: t - t % timedelta(milliseconds=1))
    | st.datetimes(timezones=st.just(UTC))
)
def test_what_is_written_means_the_same_again(value: Deadline) -> None:
    assert deadlines.deadline(deadlines.written(value)) == value


# ---------------------------------------------------------------- mistakes

MISTAKES: list[tuple[str, str]] = [
    ("priority: hihg", "2:49: task 'a': 'priority' must be low, normal or high, not the text 'hihg' (did you mean 'high'?)"),
    ("priority: 1", "2:49: task 'a': 'priority' must be low, normal or high, not the number 1"),
    ("priority: null", "2:49: task 'a': 'priority' is empty (give it a value, or remove the key)"),
    ("deadline: 15d", "2:49: task 'a': 'deadline' must be at most 14d (or give it as a time: 2026-12-01T08:00:00Z)"),
    ("deadline: 0s", "2:49: task 'a': 'deadline' must be longer than 0s, or a time such as 2026-12-01T08:00:00Z"),
    ("deadline: 6", "2:49: task 'a': 'deadline' must be a duration such as 30s, 5m, 1m30s, 2h or 1d, or a time such as 2026-12-01T08:00:00Z"),
    ("deadline: 2026-12-01", "2:49: task 'a': 'deadline' must be a time of RFC 3339, with seconds and offset (did you mean '2026-12-01T00:00:00Z'?)"),
    ("deadline: 2026-12-01T08:00+01:00", "2:49: task 'a': 'deadline' must be a time of RFC 3339, with seconds and offset (did you mean '2026-12-01T08:00:00+01:00'?)"),
    ("deadline: 2026-1-1", "2:49: task 'a': 'deadline' must be a time of RFC 3339, with seconds and offset (such as 2026-12-01T08:00:00Z or 2026-12-01T10:00:00+02:00)"),
    ("deadline: 2026-12-01 08:00:00", "2:49: task 'a': 'deadline' is a time without an offset from UTC (write 2026-12-01T08:00:00Z, or with another offset, as in +02:00)"),
    ("deadline: 2026-02-30T08:00:00Z", "2:49: task 'a': 'deadline' is a time that does not exist (such as 2026-12-01T08:00:00Z or 2026-12-01T10:00:00+02:00)"),
    ("time_limit: 15d", "2:51: task 'a': 'time_limit' must be at most 14d"),
    ("time_limit: 2026-12-01T08:00:00Z", "2:51: task 'a': 'time_limit' must be a duration such as 30s, 5m, 1m30s, 2h or 1d"),
    ("time_limit: 59s", "2:51: task 'a': 'time_limit' 59s is shorter than one attempt: the timeout is 1m of the agent (lower 'timeout' too)"),
    ("time_limit: 3s, timeout: 4s", "2:51: task 'a': 'time_limit' 3s is shorter than one attempt: the timeout is 4s (lower 'timeout' too)"),
    ("approval: yes", "2:49: task 'a': 'approval' must be true, false, or {ask: TEXT, expires: DURATION, on_expiry: reject}"),
    ("approval: [x]", "2:49: task 'a': 'approval' must be true, false, or {ask: TEXT, expires: DURATION, on_expiry: reject}"),
    ("approval: {aks: x}", "2:50: task 'a': unknown key 'aks' in 'approval' (did you mean 'ask'?)"),
    ("approval: {ask: }", "2:55: task 'a': 'approval.ask' is empty (give it a value, or remove the key)"),
    ("approval: {ask: ' '}", "2:55: task 'a': 'approval.ask' must not be empty"),
    (f"approval: {{ask: {'x' * 501}}}", "2:55: task 'a': 'approval.ask' must be at most 500 characters long"),
    ("approval: {ask: 'So {{ item }}?'}", "2:59: task 'a': '{{ item }}' stands in a task without for_each"),
    ("approval: {ask: 'So {{ a }}?'}", "2:59: task 'a': '{{ a }}' cannot stand in a question: a task's result can be placed in prompts only"),
    ("approval: {expires: 15d}", "2:59: task 'a': 'approval.expires' must be at most 14d"),
    ("approval: {expires: 1h, on_expiry: aprove}", "2:74: task 'a': 'approval.on_expiry' must be reject or approve, not the text 'aprove' (did you mean 'approve'?)"),
    ("approval: {on_expiry: reject}", "2:49: task 'a': 'approval' has 'on_expiry' but never expires (add 'expires', or remove 'on_expiry')"),
    ("quorum: 0", "2:47: task 'a': 'quorum' must be at least 1, not the number 0"),
    ("quorum: 1", "2:47: task 'a': 'quorum' counts optional needs, and this task has none (needs: {ID: optional})"),
    ("quorum: half", "2:47: task 'a': 'quorum' must be a whole number, not the text 'half'"),
    ("mode: waves", "2:39: task 'a': 'mode' cannot stand in a task (write it at the top of the plan)"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "expected"), MISTAKES, ids=[keys[:40] for keys, _ in MISTAKES])
def test_a_mistake_is_told_once_with_its_place(keys: str, expected: str) -> None:
    assert mistakes(f"tasks:\n  - {{id: a, agent: writer, prompt: x, {keys}}}\n") == [f"p:{expected}"]


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("mode: wave", "'mode' must be window or waves, not the text 'wave' (did you mean 'waves'?)"),
        ("deadline: 3w", "'deadline' must be a duration such as 30s, 5m, 1m30s, 2h or 1d, or a time such as 2026-12-01T08:00:00Z"),
        ("deadline: 2026-12-01T08:00:00", "'deadline' is a time without an offset from UTC (write 2026-12-01T08:00:00Z, or with another offset, as in +02:00)"),
    ],
)  # fmt: skip
def test_a_mistake_at_the_top_of_the_plan(top: str, expected: str) -> None:
    (found,) = mistakes(f"{top}\ntasks: [{{id: a, agent: idle, prompt: x}}]")

    assert found == f"p:1:{top.index(' ') + 2}: {expected}"


def test_a_question_has_a_limit_also_when_it_is_filled_in() -> None:
    text = "params: {p: {}}\ntasks:\n  - {id: a, for_each: [x, yy], agent: idle, prompt: '{{ item }}', approval: {ask: '{{ params.p }}{{ item }}'}}\n"

    assert tasks(text, params={"p": "x" * 498})
    assert mistakes(text, params={"p": "x" * 499}) == [
        "p:3:83: task 'a': 'approval.ask' must be at most 500 characters long when it is filled in"
    ]


@pytest.mark.parametrize(
    ("defaults", "keys"),
    [
        ("{}", "timeout: soon, time_limit: 1s"),
        ("{timeout: soon}", "time_limit: 1s"),
        ("{time_limit: soon}", "timeout: 2s"),
        ("{}", "agent: nobody, time_limit: 1s"),
        ("{}", "needs: {nobody: optional}, quorum: 2"),
        ("{}", "needs: {b: optional}, quorum: 1"),
        ("{}", "needs: {broken: optional}, quorum: 3"),
        ("{}", "needs: perhaps, quorum: 1"),
    ],
)
def test_what_depends_on_a_mistake_is_not_complained_of(defaults: str, keys: str) -> None:
    agent = "" if "agent" in keys else "agent: idle, "
    text = (
        f"defaults: {defaults}\ntasks:\n  - {{id: b, {agent}prompt: x, {keys}}}\n"
        f"  - {{id: broken, agent: idle, prompt: '{{{{ item }}}}', for_each: {'[[x]]' if 'broken' in keys else '[x]'}}}\n"
    )
    (found,) = mistakes(text)

    assert "quorum" not in found
    assert "shorter" not in found


def test_a_time_limit_of_the_defaults_must_hold_for_every_task() -> None:
    text = "defaults: {time_limit: 45s}\ntasks:\n  - {id: a, agent: idle, prompt: x}\n  - {id: b, agent: writer, prompt: x}\n"

    assert mistakes(text) == [
        "p:1:24: task 'b': 'time_limit' 45s is shorter than one attempt: the timeout is 1m of the agent (lower 'timeout' too)"
    ]


@given(st.text(st.sampled_from("0123456789-+:.TtZz dhms"), max_size=30))
def test_any_text_is_a_deadline_or_a_mistake(text: str) -> None:
    try:
        found = deadlines.deadline(text)
    except Mistake:
        return

    assert deadlines.deadline(deadlines.written(found)) == found


# ---------------------------------------------------------------- warnings

CHAIN = """\
defaults: {agent: idle, timeout: 5m}
tasks:
  - {id: scan, for_each: [a, b], prompt: "{{ item }}"}
  - {id: quick, prompt: x, timeout: 1m, needs: [scan]}
  - {id: report, prompt: x, timeout: 10m, needs: [scan, quick]}
"""
AT_FULL_TIMEOUT = "with one attempt of each task at its full timeout"


def warnings(text: str, now: datetime | None = None) -> list[str]:
    result = plan_from_text(text, file="p", registry=REGISTRY, folder=DictFolder(FILES), now=now)
    return [str(warning) for warning in result.warnings]


@pytest.mark.parametrize(
    ("deadline", "now", "expected"),
    [
        ("16m", None, None),
        ("15m59s", None, "the deadline of 15m59s may be missed: scan[a] -> quick -> report takes 16m " + AT_FULL_TIMEOUT),
        ("2026-12-01T12:16:00Z", NOON, None),
        (
            "2026-12-01T13:15:00.5+01:00",
            NOON,
            "the deadline 2026-12-01T12:15:00.5Z, 15m from now, may be missed: scan[a] -> quick -> report takes 16m " + AT_FULL_TIMEOUT,
        ),
        ("2026-12-01T12:00:00Z", NOON, "the deadline 2026-12-01T12:00:00Z has passed"),
        ("2026-12-01T12:00:00Z", None, None),
    ],
)  # fmt: skip
def test_a_deadline_of_the_plan_before_the_end_of_its_critical_path(
    deadline: str, now: datetime | None, expected: str | None
) -> None:
    assert warnings(f"deadline: {deadline}\n{CHAIN}", now) == ([f"p:1:11: {expected}"] if expected else [])


def test_a_deadline_of_a_task_is_measured_along_the_way_to_it() -> None:
    """What comes after the task, or beside it, does not count."""
    text = CHAIN.replace("timeout: 1m,", "timeout: 1m, deadline: %s,")

    assert warnings(text % "6m") == []
    assert warnings(text % "350s") == [
        "p:4:51: task 'quick': the deadline of 5m50s may be missed: scan[a] -> quick takes 6m " + AT_FULL_TIMEOUT
    ]


def test_a_deadline_that_many_tasks_share_is_warned_of_once() -> None:
    """By the task that is latest."""
    (found,) = warnings(CHAIN.replace("timeout: 5m", "timeout: 5m, deadline: 4m"))

    assert found.startswith(
        "p:1:48: task 'report': the deadline of 4m may be missed: scan[a] -> quick -> report takes 16m"
    )
    assert found.endswith("(and 3 other tasks of the same deadline)")


def test_a_long_way_is_shortened() -> None:
    chain = "".join(
        f"  - {{id: t{n}, agent: idle, prompt: x, needs: {f'[t{n - 1}]' if n else '[]'}}}\n" for n in range(50)
    )

    (found,) = warnings(f"deadline: 1m\ntasks:\n{chain}")

    assert "missed: t0 -> t1 -> t2 -> ... (45 more) ... -> t48 -> t49 takes 25m with" in found


@pytest.mark.parametrize(
    ("written", "given", "budget", "source"),
    [
        ("budget_usd: 0.50\n", None, "0.5", "plan"),
        ("budget_usd: 12\n", None, "12", "plan"),
        ("budget_usd: 0.1\n", None, "0.1", "plan"),
        ("budget_usd: 0.50\n", Decimal(3), "3", "option"),
        ("", Decimal("0.07"), "0.07", "option"),
        ("", None, None, None),
    ],
)
def test_a_budget_is_read_by_its_digits(
    written: str, given: Decimal | None, budget: str | None, source: str | None
) -> None:
    text = f"{written}tasks: [{{id: a, agent: idle, prompt: Go.}}]"

    read = plan_from_text(text, file="p", registry=REGISTRY, folder=DictFolder(FILES), budget=given)

    assert read.plan.budget == (None if budget is None else Decimal(budget))
    assert read.plan_sources.get("budget_usd") == source


def test_a_task_has_a_budget_of_its_own_or_that_of_the_defaults_and_never_that_of_its_agent() -> None:
    read = plan_from_text(
        """
budget_usd: 9
agents: [{name: scout, version: "1", model: m, instructions: Go., budget_usd: 0.30}]
defaults: {agent: scout, budget_usd: 0.1}
tasks:
  - {id: a, prompt: Go.}
  - {id: b, for_each: [x, y], prompt: "{{ item }}", budget_usd: 0.07}
""",
        file="p",
        registry=REGISTRY,
        folder=DictFolder(FILES),
    )

    budgets = {task.id: task.budget for task in read.plan.tasks}
    assert budgets == {"a": Decimal("0.1"), "b[x]": Decimal("0.07"), "b[y]": Decimal("0.07")}
    assert [agent.budget for agent in read.plan.agents] == [Decimal("0.30")]
    assert (read.sources["a"]["budget_usd"], read.sources["b[x]"]["budget_usd"]) == ("defaults", "task")
    assert Plan.model_validate_json(read.plan.model_dump_json()) == read.plan


def test_a_plan_without_caps_is_written_as_before() -> None:
    """So what earlier releases have submitted is the same plan, by its hash."""
    written = planned("tasks: [{id: a, agent: idle, prompt: x}]").plan.model_dump(mode="json")

    assert "budget" not in written["tasks"][0]
    assert "budget" not in written["agents"][0]


@pytest.mark.parametrize("amount", ["0", "-1", "much", "true", ".nan", ".inf", "1000001"])
def test_a_cap_that_is_no_amount_is_refused(amount: str) -> None:
    assert len(mistakes(f"tasks: [{{id: a, agent: idle, prompt: x, budget_usd: {amount}}}]")) == 1
