"""What the decorators declare, checked at import: a mistake is a `Misuse` where it is written, not where it would hurt."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType
from typing import Any, Generic, Literal, TypeVar, get_origin

from semel.engine.data import Parameters, Result, hints_of
from semel.errors import Misuse
from semel.machine import keys
from semel.machine.effects import ATOMIC
from semel.machine.recovery import Rung
from semel.model import Ask, Atomic, Json, Limits, Lookup, Recovery, Repeat, Resend, Retry, Submission

D = TypeVar("D", "Effect", "Step", "Work")


def milliseconds(duration: timedelta) -> int:
    """A duration in whole milliseconds, rounded up."""
    return -(-duration // timedelta(milliseconds=1))


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a coroutine."""
    if isinstance(fn, FunctionType) and fn.__code__.co_flags & inspect.CO_COROUTINE:
        return True  # what is below says so too, and takes ten times as long
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


@dataclass(frozen=True)
class Looked:
    """A lookup: its function, and which of the effect's parameters it names."""

    fn: Callable[..., Any]
    is_async: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class Approves:
    """A predicate over an effect's arguments: whether people must approve the call. names: those that it asks for."""

    fn: Callable[..., bool]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Observes:
    """What tells as whom an effect would be sent: its function, and which of the effect's parameters it names."""

    fn: Callable[..., Any]
    is_async: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class Effect:
    """A declared effect. timeout_ms: of one submission."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    parameters: Parameters
    result: Result
    intent: tuple[str, ...]
    material: tuple[str, ...]
    rungs: tuple[Rung, ...]
    lookups: dict[int, Looked]
    scope: Literal["task", "tenant"]
    not_done: tuple[type[Exception], ...]
    tries: int
    timeout_ms: int
    per_task: int | None
    formerly: tuple[str, ...]
    approve: bool | Approves = False
    identity: Observes | None = None
    redact: tuple[str, ...] = ()

    @functools.cached_property
    def first_name(self) -> str:
        """The name it was first declared under: keys and records go by it, so that a rename changes no key (R22)."""
        return self.formerly[0] if self.formerly else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """All names that it has, or had."""
        return (*self.formerly, self.name)

    @functools.cached_property
    def ladder(self) -> tuple[str, ...]:
        """Its rungs as they are recorded."""
        return tuple(str(rung) for rung in self.rungs)

    @functools.cached_property
    def atomic(self) -> bool:
        """Whether it writes in the ledger's own database."""
        return self.rungs[0].kind == ATOMIC


@dataclass(frozen=True)
class Step:
    """A declared step."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    parameters: Parameters
    result: Result
    formerly: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """A declared task. timeout_ms: looked at between its effects."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    parameters: Parameters
    result: Result
    intent: tuple[str, ...] | None
    queue: str
    retry: Retry
    limits: Limits
    timeout_ms: int | None
    formerly: tuple[str, ...]

    @property
    def first_name(self) -> str:
        """The name it was first declared under: keys and records go by it, so that a rename changes no key (R22)."""
        return self.formerly[0] if self.formerly else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """All names that it has, or had."""
        return (*self.formerly, self.name)


def key_of(
    application: str, tenant: str, task: tuple[str, str], effect: Effect, data: Mapping[str, Json], occurrence: str,
    generation: int,
) -> str:  # fmt: skip
    """The key of a call of an effect by a task (its kind and key)."""
    scope = ("task", *task) if effect.scope == "task" else ("tenant",)
    intent = {name: data[name] for name in effect.intent}
    return keys.effect_key(application, tenant, scope, effect.first_name, intent, occurrence, generation)


def names_of(value: object, field: str, what: str, known: Parameters) -> tuple[str, ...]:
    """A tuple of parameter names, checked."""
    if isinstance(value, str) or not isinstance(value, tuple | list) or not all(isinstance(v, str) for v in value):
        raise Misuse(
            f"{what}: {field} must be a tuple of parameter names, not {value!r}; write {field}=({value!r},)"
            if isinstance(value, str)
            else f"{what}: {field} must be a tuple of parameter names, not {value!r}"
        )
    for name in value:
        if name not in known.values:
            raise Misuse(
                f"{what}: {field} names {name!r}, which is no parameter of it; it has {', '.join(known.values) or 'none'}"
            )
    return tuple(value)


def submission_first(fn: Callable[..., Any], what: str) -> None:
    """Raise `Misuse` unless the first parameter is annotated as a Submission."""
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    if first is None or hints_of(fn, what).get(first.name) is not Submission:
        shown = f"{first.name!r}" if first else "none"
        raise Misuse(
            f"{what}: its first parameter must be a semel.Submission, and is {shown}; "
            f"write def {fn.__name__}(submission: semel.Submission, ...)"
        )


def effect(
    fn: Callable[..., Any],
    *,
    intent: tuple[str, ...],
    material: tuple[str, ...],
    recovery: Recovery | list[Recovery],
    scope: Literal["task", "tenant"],
    not_done: tuple[type[Exception], ...],
    tries: int,
    timeout: timedelta,
    per_task: int | None,
    name: str | None,
    formerly: tuple[str, ...],
    approve: bool | Callable[..., bool] = False,
    identity: Callable[..., Mapping[str, str]] | None = None,
    redact: tuple[str, ...] = (),
) -> Effect:
    """The declaration of an effect. Raises `Misuse`."""
    what = f"effect {name or getattr(fn, '__name__', fn)}"
    if not callable(fn):
        raise Misuse(f"{what} is not a function")
    submission_first(fn, what)
    parameters = Parameters(fn, what, first=1)
    if scope not in ("task", "tenant"):
        raise Misuse(f"{what}: scope is {scope!r}; write scope='task' or scope='tenant'")
    if tries < 1:
        raise Misuse(f"{what}: tries={tries} never submits it; write 1 or more")
    if milliseconds(timeout) <= 0:
        raise Misuse(f"{what}: timeout is {timeout}; every effect has a timeout above zero")
    rungs, lookups = ladder(recovery, what, parameters)
    hidden = names_of(redact, "redact", what, parameters)
    looks = observes(identity, what, parameters)
    check_redacted(hidden, intent, rungs, lookups, looks, what)
    return Effect(
        name or fn.__name__, fn, is_async(fn), parameters, Result(fn, what), names_of(intent, "intent", what, parameters),
        names_of(material, "material", what, parameters), rungs, lookups, scope, exceptions(not_done, what), tries,
        milliseconds(timeout), per_task, tuple(formerly), approves(approve, what, parameters),
        looks, hidden,
    )  # fmt: skip


def check_redacted(
    redact: tuple[str, ...],
    intent: tuple[str, ...],
    rungs: tuple[Rung, ...],
    lookups: dict[int, Looked],
    looks: Observes | None,
    what: str,
) -> None:
    """Raise `Misuse` where a redacted parameter would be needed from the record, on which it never stands."""
    for name in redact:
        if name in intent:
            raise Misuse(
                f"{what}: {name} is redacted and in its intent, of which its key is made without a secret: it could be found "
                f"by trying; leave it out of intent, and name a reference to it there"
            )
        for looked in lookups.values():
            if name in looked.names:
                raise Misuse(
                    f"{what}: lookup {looked.fn.__name__} asks for {name!r}, which is redacted, and it may run where nobody "
                    f"knows it; look up by submission.key, or by a parameter that is not redacted"
                )
        if looks is not None and name in looks.names:
            raise Misuse(
                f"{what}: its identity function asks for {name!r}, which is redacted, and it may run where nobody knows it; let "
                f"it ask for parameters that are not redacted"
            )
    for rung in rungs if redact else ():
        if rung.kind in ("resend", "repeat"):
            raise Misuse(
                f"{what}: {rung.kind.capitalize()} sends the recorded call again, and of that {', '.join(redact)} is redacted; "
                f"use Lookup or Ask, or pass a reference to it, and fetch the value inside the effect: then nothing is to redact"
            )


def approves(approve: object, what: str, parameters: Parameters) -> bool | Approves:
    """Whether people must approve each call, or what tells that of one; its parameters checked against the effect's."""
    if isinstance(approve, bool):
        return approve
    if not callable(approve) or is_async(approve):
        raise Misuse(
            f"{what}: approve is {approve!r}; write approve=True, or a plain function of its arguments that returns a bool: "
            f"approve=lambda cents: cents > 10_000"
        )
    names = tuple(inspect.signature(approve).parameters)
    for wanted in names:
        if wanted not in parameters.values:
            raise Misuse(
                f"{what}: its approve predicate asks for {wanted!r}, which is no parameter of the effect; "
                f"it may ask for {', '.join(parameters.values)}"
            )
    return Approves(approve, names)


def observes(identity: object, what: str, parameters: Parameters) -> Observes | None:
    """What tells as whom the effect would be sent, if anything does; checked against the effect's parameters."""
    if identity is None:
        return None
    if not callable(identity):
        raise Misuse(
            f"{what}: identity is {identity!r}; write a function of its arguments that looks, and returns names and values: "
            f"identity=who_is_logged_in"
        )
    name = getattr(identity, "__name__", repr(identity))
    names = tuple(inspect.signature(identity).parameters)
    for wanted in names:
        if wanted not in parameters.values:
            raise Misuse(
                f"{what}: its identity function {name} asks for {wanted!r}, which is no parameter of the effect; "
                f"it may ask for {', '.join(parameters.values)}"
            )
    given = hints_of(identity, what).get("return", Any) if inspect.isroutine(identity) else Any
    shape = get_origin(given) or given
    if given is not Any and not (isinstance(shape, type) and issubclass(shape, Mapping)):
        raise Misuse(
            f"{what}: its identity function {name} returns {given}; write -> dict[str, str]: names and what was observed"
        )
    return Observes(identity, is_async(identity), names)


def exceptions(not_done: object, what: str) -> tuple[type[Exception], ...]:
    """The declared exceptions that prove that nothing happened."""
    if not isinstance(not_done, tuple) or not all(isinstance(t, type) and issubclass(t, Exception) for t in not_done):
        raise Misuse(
            f"{what}: not_done must be a tuple of exception types, not {not_done!r}; write not_done=(ConnectionRefusedError,)"
        )
    for kind in not_done:
        if issubclass(TimeoutError, kind) or issubclass(ConnectionResetError, kind):
            raise Misuse(
                f"{what}: not_done={kind.__name__} would take a timeout or a cut connection for proof that nothing "
                f"happened; name only what is raised before the first byte is sent, as ConnectionRefusedError"
            )
    return not_done


def ladder(recovery: Recovery | list[Recovery], what: str, parameters: Parameters) -> tuple[tuple[Rung, ...], dict[int, Looked]]:
    """The rungs, a person last, and the lookups by the index of their rung."""
    declared = list(recovery) if isinstance(recovery, list | tuple) else [recovery]
    if len(declared) > 1 and any(isinstance(r, Atomic) for r in declared):
        raise Misuse(f"{what}: Atomic() is exact, and leaves nothing to another rung; write recovery=semel.Atomic()")
    if not any(isinstance(r, Ask) for r in declared):
        declared.append(Ask())
    rungs, lookups = [], {}
    for index, rung in enumerate(declared):
        if isinstance(rung, Lookup):
            lookups[index] = looked(rung, what, parameters)
            rungs.append(Rung("lookup", settle_ms=milliseconds(rung.settle)))
        elif isinstance(rung, Resend):
            rungs.append(Rung("resend", None if rung.within is None else milliseconds(rung.within)))
        elif isinstance(rung, Ask):
            rungs.append(Rung("ask", settle_ms=milliseconds(rung.settle)))
        elif isinstance(rung, Repeat):
            rungs.append(Rung("repeat"))
        elif isinstance(rung, Atomic):
            rungs.append(Rung(ATOMIC))
        else:
            raise Misuse(f"{what}: {rung!r} is no recovery; write recovery=semel.Ask()")
    return tuple(rungs), lookups


def looked(lookup: Lookup, what: str, parameters: Parameters) -> Looked:
    """A lookup, its parameters checked against the effect's."""
    fn = lookup.fn
    name = getattr(fn, "__name__", repr(fn))
    submission_first(fn, f"{what}: lookup {name}")
    names = [p.name for p in list(inspect.signature(fn).parameters.values())[1:]]
    for wanted in names:
        if wanted not in parameters.values:
            raise Misuse(
                f"{what}: lookup {name} asks for {wanted!r}, which is no parameter of the effect; "
                f"it may ask for {', '.join(parameters.values)}"
            )
    return Looked(fn, is_async(fn), tuple(names))


def step(fn: Callable[..., Any], *, name: str | None) -> Step:
    """The declaration of a step. Raises `Misuse`."""
    what = f"step {name or getattr(fn, '__name__', fn)}"
    return Step(name or fn.__name__, fn, is_async(fn), Parameters(fn, what, first=0), Result(fn, what))


def task(
    fn: Callable[..., Any],
    *,
    intent: tuple[str, ...] | None,
    queue: str,
    retry: Retry,
    limits: Limits,
    timeout: timedelta | None,
    name: str | None,
    formerly: tuple[str, ...],
) -> Work:
    """The declaration of a task. Raises `Misuse`."""
    what = f"task {name or getattr(fn, '__name__', fn)}"
    parameters = Parameters(fn, what, first=0)
    if not queue:
        raise Misuse(f"{what}: queue is empty; write queue='default'")
    return Work(
        name or fn.__name__, fn, is_async(fn), parameters, Result(fn, what),
        None if intent is None else names_of(intent, "intent", what, parameters), queue, retry, limits,
        None if timeout is None else milliseconds(timeout), tuple(formerly),
    )  # fmt: skip


class Registry(Generic[D]):
    """Declarations by name, old names included."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._known: dict[str, D] = {}

    def add(self, declared: D) -> None:
        """Raises `Misuse` for a second of one name."""
        for name in (declared.name, *declared.formerly):
            other = self._known.get(name)
            if other is not None and (other.fn.__module__, other.fn.__qualname__) != (
                declared.fn.__module__,
                declared.fn.__qualname__,
            ):
                raise Misuse(
                    f"two {self._what}s are called {name!r}: {other.fn.__module__}.{other.fn.__qualname__} and "
                    f"{declared.fn.__module__}.{declared.fn.__qualname__}; give one a name of its own: name='...'"
                )
            self._known[name] = declared

    def get(self, name: str) -> D | None:
        """The declaration of that name, if there is one."""
        return self._known.get(name)

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(sorted(self._known))


def check_approvers(approvers: Mapping[str, int], effects: Registry[Effect]) -> None:
    """Raise `Misuse` for a number of approvers that would guard nothing."""
    for name, number in approvers.items():
        declared = effects.get(name)
        if declared is None or declared.approve is False:
            raise Misuse(
                f"app.approvers names {name!r}, which is no effect that is approved; declare it with approve=True, or take it out"
            )
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise Misuse(f"app.approvers[{name!r}] is {number!r}; write how many different people must approve it: 2")
