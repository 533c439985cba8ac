"""Finding what a command is about: the app of a module, the store at a URL, the task or effect that somebody means."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from semel.app import App
from semel.cli.output import clipped
from semel.engine.pages import every_effect, every_task
from semel.errors import Misuse, SemelError
from semel.machine.projection import EffectRow, TaskRow
from semel.store.contract import Store
from semel.store.places import Place, place_of

DEFAULT_STORE = "sqlite:///semel.db"
LEAST_PART = 4  # characters of an id that somebody types: fewer are too easily another's
SHOWN = 6
_MISTAKES = (SyntaxError, ImportError, NameError, AttributeError, TypeError)  # starting again changes nothing


# --- the app --------------------------------------------------------------------------------------------------------


def here_on_path() -> None:
    """The current directory is importable, as under `python -m`."""
    here = str(Path.cwd())
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def split_target(target: str) -> tuple[str, str]:
    """MODULE:app in two. Raises `Misuse`."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise Misuse(f"{target!r} names no app; write MODULE:app, as in billing:app for `app = semel.App(...)` in billing.py")
    if module.endswith(".py") or "/" in module:
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        raise Misuse(f"{module!r} is a file, and a module is wanted; write {dotted}:{name} where `import {dotted}` works")
    return module, name


def load_app(target: str) -> App:
    """The App that MODULE:app names. Raises `Misuse`, or `SemelError` for what may be better at the next try."""
    name, attribute = split_target(target)
    here_on_path()
    try:
        module = importlib.import_module(name)
    except SemelError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise Misuse(_broken(name, error)) from error
        raise _no_module(error.name, name) from error
    except _MISTAKES as error:
        raise Misuse(_broken(name, error)) from error
    except Exception as error:
        raise SemelError(_broken(name, error)) from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    there = [key for key, value in vars(module).items() if isinstance(value, App)]
    hint = f"write {name}:{there[0]}" if there else "it has no semel.App at all; write app = semel.App() in it"
    what = f"{attribute!r} is a {type(found).__name__}" if found is not None else f"it has no {attribute!r}"
    raise Misuse(f"module {name} has no app of that name ({what}); {hint}")


def _no_module(missing: str, name: str) -> Misuse:
    return Misuse(f"there is no module {missing!r}; run semel where `import {name}` works (this is {Path.cwd()})")


def _broken(name: str, error: Exception) -> str:
    said = str(error)
    if isinstance(error, SyntaxError):
        where, said = f"{error.filename}, line {error.lineno}", error.msg
    else:  # the last line that is not the import system's own
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
        where = f"{frames[-1].filename}, line {frames[-1].lineno}"
    return f"module {name} cannot be imported: {type(error).__name__}: {said} ({where})"


def check_module(target: str) -> None:
    """Raise `Misuse` for what can be seen to be wrong without running the module's code."""
    name, _ = split_target(target)
    here_on_path()
    top = name.partition(".")[0]
    try:
        there = importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        raise _no_module(top, name)


# --- the store ------------------------------------------------------------------------------------------------------


def check_there(url: str) -> None:
    """Raise `Misuse` where there is no store: looking must not make one."""
    place = place_of(url)
    if place.dialect == "postgres":
        check_database(place)
        return
    if place.where == ":memory:":
        raise Misuse("a store in memory lives in its own process alone; name one in a file: --store sqlite:///agent.db")
    path = Path(place.where)
    name = "name the store with --store sqlite:///path/to/it.db, or SEMEL_STORE in the environment"
    if not path.exists():
        raise Misuse(f"there is no store at {path.absolute()}, and looking does not make one; {name}")
    if path.is_file() and path.stat().st_size == 0 and not Path(f"{path}-wal").exists():
        raise Misuse(f"{path.absolute()} is an empty file, not a store; {name}")


def check_database(place: Place) -> None:
    """Raise `Misuse` where a database has no store in it, `StoreUnavailable` where it does not answer."""
    from semel.store.pgschema import has_store

    if not has_store(place.where):
        raise Misuse(f"there is no store in {place.shown}, and looking does not make one; make it: semel migrate --store URL")


@contextlib.contextmanager
def store_at(url: str, tenant: str | None) -> Iterator[App]:
    """An App on the store at `url`, which exists; closed afterwards. tenant None: all of them."""
    check_there(url)
    app = App(url, tenant=tenant)
    try:
        yield app
    finally:
        app.close()


@contextlib.contextmanager
def closing(app: App) -> Iterator[App]:
    """Let go of the store of an app that was loaded."""
    try:
        yield app
    finally:
        app.close()


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """A journal that cannot be read back is damage, not a crash of ours."""
    try:
        yield
    except (ValueError, KeyError, IndexError, AssertionError, TypeError, AttributeError) as error:
        raise SemelError(
            f"{what} cannot be read from its journal ({type(error).__name__}: {error}); check the store: semel verify"
        ) from error


# --- what somebody means --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """One task or effect. row: its row in the store."""

    what: Literal["task", "effect"]
    id: str
    tenant: str
    row: TaskRow | EffectRow

    def __str__(self) -> str:
        named = f"{self.row.kind} {self.row.key}" if isinstance(self.row, TaskRow) else self.row.name
        return f"{self.id} ({self.what} {clipped(named, 40)}, tenant {self.tenant})"


def find(store: Store, text: str, tenant: str, *, among: tuple[str, ...] = ("task", "effect")) -> Found:
    """The one task or effect that `text` names: an id, an effect's key, a task's key, or the start or end of an id.

    Raises `Misuse` if there is none, or more than one.
    """
    exact = _exact(store, text, tenant, among)
    if exact is not None:
        return exact
    matches = list(_scan(store, text, among))
    own = [found for found in matches if found.tenant == tenant]
    named = [found for found in own if isinstance(found.row, TaskRow) and found.row.key == text]
    found = named or own
    if len(found) == 1:
        return found[0]
    what = " and no ".join(among)
    if len(found) > 1:
        listed = "\n  ".join([*map(str, found[:SHOWN]), *(["..."] if len(found) > SHOWN else [])])
        raise Misuse(f"{text!r} is {len(found)} things; write the whole id:\n  {listed}")
    if matches:
        raise Misuse(
            f"there is no {what} {text!r} of tenant {tenant!r}, but there is {matches[0]}; write --tenant {matches[0].tenant}"
        )
    hint = "see: semel tasks" if "task" in among else "see: semel unknown, semel approvals, or semel show TASK"
    few = f" (of an id, write at least {LEAST_PART} characters)" if len(text) < LEAST_PART else ""
    raise Misuse(f"there is no {what} {text!r} of tenant {tenant!r}{few}; {hint}")


def task_of(store: Store, found: Found) -> Found:
    """The task itself, or the task of the effect that was found. Raises `Misuse`."""
    if isinstance(found.row, TaskRow):
        return found
    task = store.task(found.tenant, found.row.task)
    if task is None:
        raise Misuse(f"effect {found.id} is of task {found.row.task}, which is not there; check the store: semel verify")
    return Found("task", task.task, found.tenant, task)


def _exact(store: Store, text: str, tenant: str, among: tuple[str, ...]) -> Found | None:
    if "task" in among and (task := store.task(tenant, text)) is not None:
        return Found("task", task.task, tenant, task)
    if "effect" in among and (effect := store.effect(tenant, text)) is not None:
        return Found("effect", effect.key, tenant, effect)
    return None


def _scan(store: Store, text: str, among: tuple[str, ...]) -> Iterator[Found]:
    """All that `text` may mean, of every tenant."""
    if "task" in among:
        tasks = [task for task in every_task(store) if task.key == text or _part_of(text, task.task)]
        for task in sorted(tasks, key=lambda row: row.task, reverse=True):  # the newest first
            yield Found("task", task.task, task.tenant, task)
    if "effect" in among:
        for effect in every_effect(store):
            if _part_of(text, effect.key):
                yield Found("effect", effect.key, effect.tenant, effect)


def _part_of(text: str, id: str) -> bool:
    if len(text) < LEAST_PART:
        return text == id
    return id.startswith(text) or id.endswith(text) or id.removeprefix("sml_").startswith(text)
