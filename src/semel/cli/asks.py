"""`semel enqueue`: arguments from a command line, and one task accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from semel.app import App
from semel.cli.decide import strict_json
from semel.decorated import Task
from semel.engine import drive, views
from semel.engine.queue import Order, accepted, enqueue, enqueue_many
from semel.errors import Misuse
from semel.machine.tasks import Task as State

_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class Accepted(NamedTuple):
    """A task that was accepted. new: whether this call brought it into being. same: whether its arguments are these."""

    state: State
    tenant: str
    new: bool
    same: bool


def parsed(text: str) -> Any:
    """A value: JSON if it parses, else the text as it is."""
    try:
        return strict_json(text)
    except ValueError:
        return text


def arguments(given: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments. Raises `Misuse`."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for text in given:
        found = _NAMED.fullmatch(text)
        if found is None:
            if named:
                raise Misuse(f"{text!r} comes after a named argument; write the positional ones first")
            args.append(parsed(text))
        elif found[1] in named:
            raise Misuse(f"{found[1]} is given twice")
        else:
            named[found[1]] = parsed(found[2])
    return tuple(args), named


def _declared(app: App, kind: str) -> Task[..., Any]:
    app.load()
    work = app.declared_tasks.get(kind)
    if work is None:
        known = ", ".join(app.declared_tasks.names()) or "none"
        raise Misuse(f"this app declares no task {kind!r}; it has: {known}")
    return Task(app, work)


def accept_lines(app: App, kind: str, lines: Iterable[str], *, tenant: str | None, priority: int) -> list[str]:
    """Accept a task for each line, an array or an object of its arguments. Their ids. Raises `Misuse`; then none is accepted."""
    task = _declared(app, kind).using(tenant=tenant, priority=priority)
    orders: list[Order] = []
    number = 1
    try:
        for line in lines:
            if line.strip():
                orders.append(replace(task.order(*_of_line(line)), actor="cli"))
            number += 1
    except UnicodeDecodeError as error:  # of no line that could be named: they are decoded many at a time
        raise Misuse(f"the standard input is not UTF-8 text: {error}; nothing is accepted") from error
    except (ValueError, RecursionError, Misuse) as error:
        raise Misuse(f"line {number} of the standard input: {error}; nothing is accepted") from error
    return drive.run(enqueue_many(app.runtime.desk, orders))


def _of_line(line: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = strict_json(line)
    if not isinstance(given, list | dict):
        raise ValueError("it is neither an array of arguments nor an object that names them")
    return (tuple(given), {}) if isinstance(given, list) else ((), given)


def accept(app: App, kind: str, given: Sequence[str], *, key: str | None, tenant: str | None, priority: int) -> Accepted:
    """Accept one task, durably. Raises `Misuse` for arguments that its handler would not take."""
    task = _declared(app, kind).using(key=key, tenant=tenant, priority=priority)
    args, named = arguments(given)
    try:
        order = replace(task.order(args, named), actor="cli")
    except Misuse as error:
        hint = "values are read as JSON where they parse: '\"42\"' is the text 42, name=value names one, and -- comes before -1"
        raise Misuse(f"{error} ({hint})" if given else str(error)) from error
    desk = app.runtime.desk
    id, ticket = enqueue(desk, order)
    ticket.wait()
    there = accepted(id, ticket.value)
    state = views.state_of(desk, order.tenant, there)
    return Accepted(state, order.tenant, there == id, state.args == order.args)
