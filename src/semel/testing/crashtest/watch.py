"""In the worker process of a crash test: records what the user's code does, and where, so that its mistakes can be named.

Nothing of the user's code is changed, and nothing of it runs otherwise, but for the one reply that `lose_reply_of` loses.
What the records mean is said in `faults`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from semel import app as apps
from semel import decorated
from semel.engine.acting import Acting
from semel.engine.attempt import Attempt, Exit
from semel.engine.declare import Effect, is_async
from semel.engine.perform import Called, Doing, perform
from semel.engine.requests import Request
from semel.engine.runtime import Runtime, set_here
from semel.errors import AlreadyDone, Misuse, NotDone, Suspended
from semel.model import Confirmed, Conflict, NotFound, Submission, Unavailable
from semel.testing.crashtest.scene import Log, Place, Scene, current, files, lines_here, waits_at
from semel.testing.crashtest.wire import Wire

_VERDICTS = {Confirmed: "confirmed", NotFound: "not_found", Conflict: "conflict", Unavailable: "unavailable"}
_watches: list[Watch] = []


def install(app: apps.App, log: Path, lose_reply_of: str = "") -> None:
    """Watch this process from now on; before the app's first use, and once. It writes lines of JSON into `log`.

    lose_reply_of: an effect's name. The reply to the first HTTP request that may change something, of the first submission
    that this process makes of it, is lost on arrival: the connection is reset when the provider has acted. And then the
    reply to the first question of its lookup, which must not take that for an answer.
    """
    if _watches:
        raise Misuse("this process is watched already; call watch.install once in each worker process")
    if app._runtime is not None:
        raise Misuse("the app has opened its store already; call watch.install before its first use")
    watch = Watch(Log(log), lose_reply_of)
    _watches.append(watch)
    app.load()
    for registry in (app.declared_tasks, app.declared_effects, app.declared_steps):
        for name in registry.names():
            found: Any = registry.get(name)
            for fn in (found.fn, *(looked.fn for looked in getattr(found, "lookups", {}).values())):
                if place := _stands(fn):
                    files.declare(place["file"])
    watch.begin(app)


class Handling:
    """One attempt's handler, as the watch knows it. suspended: where the suspension was raised into it, and in which branch."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.suspended: tuple[tuple[Place, ...], object] | None = None
        self.told = False


class Watch:
    """The records of one process."""

    def __init__(self, log: Log, lose_reply_of: str) -> None:
        self.log = log
        self._lose, self._lose_lookup_of = lose_reply_of, ""  # an effect's name; a key
        self._wire = Wire(log)
        self._handlers: weakref.WeakKeyDictionary[Attempt, Handling] = weakref.WeakKeyDictionary()

    def begin(self, app: apps.App) -> None:
        """Put the watch between semel and the user's functions."""
        opens = "_stage" if app._stage is not None else "_real_runtime"
        real: Callable[[], Runtime] = getattr(app, opens)
        setattr(app, opens, lambda: self.watched(real()))
        left = Attempt._left

        def noted(attempt: Attempt, exit: Exit) -> Suspended:
            self.suspends(attempt, lines_here(), _branch())
            return left(attempt, exit)

        Attempt._left = noted  # type: ignore[method-assign, assignment]
        decorated.perform = self.performing(perform)  # type: ignore[attr-defined, assignment]
        self._wire.open()

    def watched(self, runtime: Runtime) -> Runtime:
        """The runtime, of whatever class, with the watch next to the user's functions: what kills, kills around it."""
        watch = self

        class Watched(Runtime):
            """What it adds."""

            def handling(self, fn: Callable[..., Any], attempt: Attempt) -> Callable[..., Any]:
                return super().handling(watch.handler(fn, attempt), attempt)

            def guarded(self, fn: Callable[..., Any], attempt: Attempt, doing: Doing, acting: Acting) -> Callable[..., Any]:
                return super().guarded(watch.effect(fn, attempt, doing), attempt, doing, acting)

            def looking(self, fn: Callable[..., Any]) -> Callable[..., Any]:
                return super().looking(watch.lookup(fn))

            def judging(self, fn: Callable[..., Any]) -> Callable[..., Any]:
                return super().judging(_around(fn, lambda *_: Scene("aside"), _silent))

            def observing(self, effect: Effect, attempt: Attempt) -> Callable[..., Any]:
                return _around(super().observing(effect, attempt), lambda *_: Scene("aside"), _silent)

        runtime.__class__ = type("Watched", (Watched, type(runtime)), {})
        return runtime

    # --- handlers ---

    def handler(self, fn: Callable[..., Any], attempt: Attempt) -> Callable[..., Any]:
        """A task's handler."""

        def begins(*_: Any) -> Scene:
            state = attempt.ledger.state
            scene = Scene("handler", state.kind, state.id, attempt.number)
            self._handlers[attempt] = Handling(scene)
            self.log.note("handler", **scene.told(), **_stands(fn))
            return scene

        def ends(scene: Scene, error: BaseException | None, result: Any) -> None:
            handling = self._handlers[attempt]
            how = "returned" if error is None else "suspended" if isinstance(error, Suspended) else "raised"
            self.log.note("ended", how=how, error=_named(error), **scene.told())
            if error is None and handling.suspended is not None:
                self.went_on(handling, "returned", ())

        return _around(fn, begins, ends)

    def suspends(self, attempt: Attempt, own: tuple[Place, ...], branch: object) -> None:
        """Its handler is unwound from here; the first time counts, the place as soon as it is known."""
        handling = self._handlers.get(attempt)
        if handling is not None and (handling.suspended is None or (own and not handling.suspended[0])):
            handling.suspended = (own, branch)

    def went_on(self, handling: Handling, how: str, own: tuple[Place, ...]) -> None:
        """Its handler has swallowed the suspension."""
        if not handling.told and handling.suspended is not None:
            handling.told = True
            self.log.note("swallowed", how=how, frames=handling.suspended[0], then=own, **handling.scene.told())

    def performing(
        self, perform: Callable[[Attempt, Called], Generator[Request, Any, Any]]
    ) -> Callable[[Attempt, Called], Generator[Request, Any, Any]]:
        """Each call of an effect, while the caller's frames are still there."""

        def called(attempt: Attempt, call: Called) -> Generator[Request, Any, Any]:
            handling = self._handlers.get(attempt)
            scene = handling.scene if handling is not None else None
            direct, branch = lines_here(), _branch()
            own = direct or (waits_at(scene).own if scene is not None else ())
            if handling is not None:
                intent = {name: call.args[name] for name in call.effect.intent}
                self.log.note(
                    "call", effect=call.effect.name, key=call.key, intent=intent, occurrence=call.occurrence, frames=own,
                    task=handling.scene.task, attempt=handling.scene.attempt,
                )  # fmt: skip
                before = handling.suspended
                if before is not None and direct and before[1] is branch and not _unwinding():
                    self.went_on(handling, "called", own)
            return self._performed(perform(attempt, call), attempt, own, branch)

        return called

    def _performed(
        self, procedure: Generator[Request, Any, Any], attempt: Attempt, own: tuple[Place, ...], branch: object
    ) -> Generator[Request, Any, Any]:
        try:
            return (yield from procedure)
        except Suspended:
            self.suspends(attempt, own, branch)
            raise

    # --- effects and lookups ---

    def effect(self, fn: Callable[..., Any], attempt: Attempt, doing: Doing) -> Callable[..., Any]:
        """An effect's function, in one submission."""
        known = attempt.ledger.effect(doing.key)
        declared = attempt.runtime.effects.get(known.name) if known is not None else None
        name = declared.name if declared is not None else ""

        def begins(*_: Any) -> Scene:
            scene = Scene("effect", name, attempt.ledger.state.id, attempt.number, doing.key, doing.n)
            if declared is not None and self._lose in declared.names and doing.n == 1:
                scene.lose, self._lose = True, ""
            rungs = [rung.kind for rung in declared.rungs] if declared is not None else []
            self.log.note("effect", rungs=rungs, **scene.told(), **_stands(fn))
            return scene

        def ends(scene: Scene, error: BaseException | None, result: Any) -> None:
            if scene.lost:
                self._lose_lookup_of = scene.key
            self.log.note(
                "effect_ended", how=_proves(declared, error), error=_named(error), lost=scene.lost, after=scene.after,
                after_reads=scene.after_reads, writes=scene.writes, clear=scene.clear, key_sent=scene.key_sent, **scene.told(),
            )  # fmt: skip

        return _around(fn, begins, ends)

    def lookup(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A lookup's function, asked once."""

        def begins(submission: Submission, *_: Any) -> Scene:
            scene = Scene("lookup", fn.__name__, submission.task_id, submission.attempt, submission.key, submission.number)
            if self._lose_lookup_of == submission.key:
                scene.lose, self._lose_lookup_of = True, ""
            self.log.note("lookup", **scene.told(), **_stands(fn))
            return scene

        def ends(scene: Scene, error: BaseException | None, result: Any) -> None:
            verdict = _VERDICTS.get(type(result), "") if error is None else "raised"
            self.log.note(
                "verdict", verdict=verdict, acts=scene.acts, error=_named(error), lost=scene.lost, after_reads=scene.after_reads,
                **scene.told(), **_stands(fn),
            )  # fmt: skip

        return _around(fn, begins, ends)


def _proves(effect: Effect | None, error: BaseException | None) -> str:
    """What the end of an effect's function says."""
    if error is None:
        return "returned"
    if isinstance(error, AlreadyDone):
        return "already_done"
    not_done: tuple[type[Exception], ...] = (NotDone, *(effect.not_done if effect is not None else ()))
    return "not_done" if isinstance(error, not_done) else "raised"


def _around(
    fn: Callable[..., Any],
    begins: Callable[..., Scene],
    ends: Callable[[Scene, BaseException | None, Any], None],
) -> Callable[..., Any]:
    """The function, of its own colour, with its scene set while it runs."""
    if is_async(fn):

        async def watched_async(*args: Any, **kwargs: Any) -> Any:
            scene = begins(*args)
            with set_here(current, scene):
                scene.coroutine = fn(*args, **kwargs)
                try:
                    result = await scene.coroutine
                except BaseException as error:
                    ends(scene, error, None)
                    raise
                ends(scene, None, result)
            return result

        return watched_async

    def watched(*args: Any, **kwargs: Any) -> Any:
        scene = begins(*args)
        with set_here(current, scene):
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                ends(scene, error, None)
                raise
            ends(scene, None, result)
        return result

    return watched


def _silent(scene: Scene, error: BaseException | None, result: Any) -> None:
    """Nothing is told of it."""


def _stands(fn: Callable[..., Any]) -> dict[str, Any]:
    """Where a function stands. line: of its first decorator."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return {"file": code.co_filename, "line": code.co_firstlineno, "function": code.co_name} if code is not None else {}


def _named(error: BaseException | None) -> str:
    return "" if error is None else type(error).__name__


def _branch() -> object:
    """The task or thread that runs here: another branch of the same handler may go on until it learns of a suspension."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task if task is not None else threading.current_thread()


def _unwinding() -> bool:
    """Whether this code runs because a suspension passes through (a `finally`, or an `except` that may raise it again)."""
    error = sys.exception()
    while error is not None:
        if isinstance(error, Suspended):
            return True
        error = error.__context__
    return False
