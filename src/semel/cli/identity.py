"""As whom, and where, a task acts: what is bound, what was observed, what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from semel.cli.output import short
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine import identity as machine
from semel.machine import tasks
from semel.model import Code, Delivery, Json


def data(state: tasks.Task) -> dict[str, Json]:
    """For programs. differs: what the last attempt observed instead; None if it observed nothing else."""
    x = state.differed
    return {
        "bound": dict(sorted(state.bound.items())),
        "differs": None if x is None else {"why": x.why, "effect": x.name, "key": x.key, "observed": x.observed},
    }


def facts(state: tasks.Task) -> Iterator[tuple[str, str]]:
    """Rows of a task's head: what is bound, and what differs."""
    if state.bound:
        yield "bound", machine.words(machine.names(state.bound))
    if state.differed is not None:
        seen, looked = state.differed.observed, state.differed.name
        yield (
            "observed" if looked else "binds",
            machine.words(machine.names(seen)) or "nothing" if seen is not None else "(it could not be)",
        )
        yield "differs", state.differed.why


def sent_as(x: e.Effect) -> str:
    """As whom an effect was sent last; "": nobody looked."""
    return machine.words(x.sent[-1].observed) if x.sent else ""


def held(delivery: str, why: str) -> bool:
    """Whether a task does not go on because it would act as somebody else."""
    return delivery == Delivery.BLOCKED and why.startswith(Code.IDENTITY_MISMATCH)


def advice(state: tasks.Task) -> str:
    """What a person does about a task that is held."""
    replay = f"semel replay {short(state.id)} --by YOU"
    return (
        f"Next: log in as what is bound, and where it is bound to; then  {replay}\n"
        f"  or, if the other one is right:  {replay} --identity NAME=VALUE"
    )


def from_options(given: Sequence[str]) -> Mapping[str, str] | None:
    """`NAME=VALUE` as given on a command line. Raises `Misuse`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise Misuse(f"--identity {text!r} names no value; write --identity account=alice")
        found[name] = value
    return found or None
