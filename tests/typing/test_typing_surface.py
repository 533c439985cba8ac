"""The public surface against the pinned stub (section8.pyi): every name, parameter, kind and stated default."""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import semel
import semel.app
import semel.decorated
import typing_lab

STUB = ast.parse((typing_lab.HERE / "section8.pyi").read_text())

# Pinned, and to come with later issues. Whoever builds one takes it off this list.
NOT_YET: set[str] = set()
# What the stub pins by reference only ("as before"), from the design's section 8: positional, then by name.
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "tasks.get": (["of"], []),
    "tasks.list": ([], []),
    "effects.get": (["key"], []),
    "effects.list": ([], ["state"]),
    "review.resolve": (["key", "verdict"], ["by", "reason"]),
    "review.approve": (["key"], ["by", "reason"]),
    "review.deny": (["key"], ["by", "reason"]),
    "review.correct": (["key"], ["by", "reason"]),
    "review.replay": (["of"], ["from_step", "by"]),
    "review.cancel": (["of"], ["by"]),
}
POSITIONAL, BOTH, STAR, NAMED, STARS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
)
Parameter = tuple[str, Any, str]  # name, kind, default as source; "" for none


def home(name: str) -> Any:
    """Where a pinned name lives: in `semel`, but for the types of the decorators and of App's parts."""
    for module in (semel, semel.decorated, semel.app):
        if hasattr(module, name):
            return getattr(module, name)
    return None


def pinned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Parameter]:
    """A function's parameters as the stub states them."""
    a = function.args
    plain = [*((x, POSITIONAL) for x in a.posonlyargs), *((x, BOTH) for x in a.args)]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(a.defaults)) + list(a.defaults)
    found = [(x.arg, kind, default) for (x, kind), default in zip(plain, defaults, strict=True)]
    if a.vararg:
        found.append((a.vararg.arg, STAR, None))
    found += [(x.arg, NAMED, default) for x, default in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg:
        found.append((a.kwarg.arg, STARS, None))
    return [(name, kind, ast.unparse(default) if default else "") for name, kind, default in found]


def real(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """The same, of the function that there is."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def differences(where: str, stated: list[Parameter], found: list[tuple[str, Any, Any]]) -> list[str]:
    if [(n, k) for n, k, _ in stated] != [(n, k) for n, k, _ in found]:
        return [f"{where}: {[(n, str(k)) for n, k, _ in found]}, pinned {[(n, str(k)) for n, k, _ in stated]}"]
    wrong = []
    for (name, _, default), (_, _, value) in zip(stated, found, strict=True):
        has = value is not inspect.Parameter.empty
        if has != bool(default) or (default not in ("", "...") and value != ast.literal_eval(default)):
            wrong.append(f"{where}({name}): default {value!r}, pinned {default or 'none'}")
    return wrong


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(qualified name, function) of the stub; overloads are for checkers only."""
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.decorator_list:
                    yield f"{node.name}.{item.name}", item


FUNCTIONS = dict(functions())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def test_the_stub_is_read_whole() -> None:
    assert {"App.effect", "App.work", "Task.using", "Ref.aresult", "Lookup.__init__", "current", "NotDone.__init__"} <= set(
        FUNCTIONS
    )
    assert len(FUNCTIONS) > 35 and len(CLASSES) > 25


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NOT_YET])
def test_every_pinned_function_is_there_as_pinned(name: str) -> None:
    owner, _, method = name.rpartition(".")
    there = getattr(home(owner), method, None) if owner else home(name)
    assert there is not None, f"{name} is pinned, and is not there"
    stated = pinned(FUNCTIONS[name])
    assert differences(name, stated, real(there)) == []
    colour = isinstance(FUNCTIONS[name], ast.AsyncFunctionDef)
    assert inspect.iscoroutinefunction(there) == colour


SAME = {"Watch": "Literal['worker', 'always', 'never']", "direct.Work": "Work"}  # as written: as pinned
WIDER = {("App.effect", "recovery"): "Recovery | list[Recovery] | None"}  # None is how the default, Ask(), is written


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NOT_YET])
def test_every_annotation_is_the_pinned_one(name: str) -> None:
    owner, _, method = name.rpartition(".")
    signature = inspect.signature(getattr(home(owner), method) if owner else home(name))
    found = {p.name: written(p.annotation) for p in signature.parameters.values()} | {
        "return": written(signature.return_annotation)
    }
    a = FUNCTIONS[name].args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    stated = {x.arg: ast.unparse(x.annotation) if x.annotation else "" for x in every}
    stated["return"] = ast.unparse(FUNCTIONS[name].returns)  # type: ignore[arg-type]
    stated |= {parameter: wide for (where, parameter), wide in WIDER.items() if where == name}
    assert found == stated


def written(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return SAME.get(annotation, annotation) if isinstance(annotation, str) else str(annotation)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_pinned_class_is_there_with_its_bases_and_attributes(name: str) -> None:
    there = home(name)
    assert inspect.isclass(there), f"class {name} is pinned, and is not there"
    for base in CLASSES[name].bases:
        named = ast.unparse(base).partition("[")[0]
        if home(named) is not None:
            assert issubclass(there, home(named))
        else:
            assert named in {parent.__name__ for parent in there.__mro__} | {"Generic", "Exception", "BaseException"}
    stated = {item.target.id for item in CLASSES[name].body if isinstance(item, ast.AnnAssign)}  # type: ignore[union-attr]
    assert stated <= attributes(there), f"{name} lacks {stated - attributes(there)}"


def attributes(cls: type) -> set[str]:
    """Names of class and instance: annotated, defined, slotted, or assigned to self in __init__."""
    found = set(dir(cls)) | set(getattr(cls, "__slots__", ()))
    for parent in cls.__mro__:
        found |= set(vars(parent).get("__annotations__", {}))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls.__init__)))
    except (OSError, TypeError, SyntaxError):
        return found
    stores = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return found | {n.attr for n in stores if isinstance(n.value, ast.Name) and n.value.id == "self"}


def test_the_names_of_the_package_are_the_pinned_ones_and_the_views() -> None:
    hidden = {"EffectDecorator", "TaskDecorator"}  # for checkers only
    wanted = (set(CLASSES) | {n for n in FUNCTIONS if "." not in n} | {"Verdict"}) - hidden - NOT_YET
    views = {"DeadLetters", "Delivery", "EffectState", "EffectView", "Event", "Execution", "Forecast", "Handled", "Planned",
             "TaskView"}  # fmt: skip
    assert set(semel.__all__) == wanted | views
    assert all(hasattr(semel, name) for name in semel.__all__)


def test_what_is_not_there_yet_is_really_not_there() -> None:
    there = {name for name in NOT_YET if "." not in name and hasattr(semel, name)}
    there |= {name for name in NOT_YET if name.startswith("App.") and hasattr(semel.App, name.removeprefix("App."))}
    assert not there, "it has come: take it off NOT_YET"


def test_what_is_not_there_yet_is_refused_where_it_is_a_parameter(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/a.db")


def mail(submission: semel.Submission, to: str) -> str:
    return to


def handler() -> None: ...


@pytest.mark.parametrize("name", PARTS)
def test_the_parts_of_an_app_take_what_the_design_says(name: str) -> None:
    part, _, method = name.partition(".")
    there = getattr(getattr(semel.App(), part), method)
    parameters = inspect.signature(there).parameters
    positional, named = PARTS[name]
    assert [p.name for p in parameters.values() if p.kind is BOTH] == positional
    assert set(named) <= {p.name for p in parameters.values() if p.kind is NAMED}


# --- twins ------------------------------------------------------------------------------------------------------------

OWNERS = {
    "App": semel.App,
    "Task": semel.Task,
    "Ref": semel.Ref,
    "Tasks": semel.app.Tasks,
    "Effects": semel.app.Effects,
    "Review": semel.app.Review,
}
# Public methods that wait for no store: they declare, describe, or are the doors of the engine, the worker and the CLI.
COLOURLESS = {"App.effect", "App.step", "App.task", "App.work", "Task.using", "Task.call", "Task.order", "Effects.row",
              "App.open_store", "App.expect_store", "App.expect_postgres", "App.load", "App.be_worker", "App.tenant_of", "App.within",
              "App.locate", "App.opened", "App.run_here"}  # fmt: skip
OF_THE_ENGINE = {"App.accept", "App.accept_many", "App.result_of"}  # behind Task.enqueue and Ref.result, which say no in a loop
PLAIN = [
    f"{owner}.{name}"
    for owner, cls in OWNERS.items()
    for name, _ in inspect.getmembers(cls, inspect.isfunction)
    if not name.startswith("_") and hasattr(cls, f"a{name}")
]


def test_every_public_method_has_a_twin_or_needs_none() -> None:
    for owner, cls in OWNERS.items():
        for name, _ in inspect.getmembers(cls, inspect.isfunction):
            plain = name.removeprefix("a")
            if name.startswith("_") or f"{owner}.{name}" in COLOURLESS or hasattr(cls, f"a{name}"):
                continue
            assert name != plain and hasattr(cls, plain), f"{owner}.{name} has no awaitable twin"


@pytest.mark.parametrize("name", PLAIN)
def test_a_method_and_its_twin_have_one_signature(name: str) -> None:
    owner, _, method = name.partition(".")
    plain, twin = getattr(OWNERS[owner], method), getattr(OWNERS[owner], f"a{method}")
    assert not inspect.iscoroutinefunction(plain) and inspect.iscoroutinefunction(twin)
    assert inspect.signature(plain) == inspect.signature(twin)
    assert get_type_hints(plain, localns=vars(semel.decorated)) == get_type_hints(twin, localns=vars(semel.decorated))


class Called:
    """One call of each plain method, on a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.app = app = semel.App(f"sqlite:///{folder}/a.db")
        task = app.task(intent=(), name="empty")(handler)
        ref: semel.Ref[None] = semel.Ref("t", "default", app=app)
        self.calls: dict[str, Callable[[], Any]] = {
            "App.run_worker": lambda: app.run_worker(until_idle=True),
            "App.journal": lambda: app.journal("t"),
            "App.stats": app.stats,
            "App.signal": lambda: app.signal("t", "paid"),
            "App.close": app.close,
            "App.result_of": lambda: app.result_of(ref, None),
            "Task.enqueue": task.enqueue,
            "Task.enqueue_many": lambda: task.enqueue_many([]),
            "Task.run": task.run,
            "Ref.result": ref.result,
            "Tasks.get": lambda: app.tasks.get("t"),
            "Tasks.list": app.tasks.list,
            "Effects.get": lambda: app.effects.get("k"),
            "Effects.proves": lambda: app.effects.proves("k", "card", "4929"),
            "Effects.list": app.effects.list,
            "Review.resolve": lambda: app.review.resolve("k", semel.NotFound(), by="me"),
            "Review.approve": lambda: app.review.approve("k", by="me"),
            "Review.deny": lambda: app.review.deny("k", by="me"),
            "Review.correct": lambda: app.review.correct("k", by="me", reason="x"),
            "Review.pending": app.review.pending,
            "Review.replay": lambda: app.review.replay("t", by="me"),
            "Review.cancel": lambda: app.review.cancel("t", by="me"),
            "Review.pause": lambda: app.review.pause(by="me", everything=True),
            "Review.resume": lambda: app.review.resume(by="me", everything=True),
            "Review.paused": app.review.paused,
            "Review.prune": lambda: app.review.prune(older_than=timedelta(days=1), export="x", by="me"),
            "Review.renew": lambda: app.review.renew("k", by="me", reason="open again"),
            "Review.forecast": lambda: app.review.forecast("t"),
            "Review.replay_many": lambda: app.review.replay_many(semel.DeadLetters(), by="me"),
            "Review.purge": lambda: app.review.purge("t", by="me", reason="old"),
            "Review.purge_many": lambda: app.review.purge_many(semel.DeadLetters(), by="me", reason="old"),
        }


@pytest.mark.parametrize("name", sorted(set(PLAIN) - {"App.accept", "App.accept_many"}))
def test_the_plain_one_inside_a_running_loop_is_misuse_that_names_its_twin(name: str, tmp_path: Path) -> None:
    owner, _, method = name.partition(".")
    call = Called(tmp_path).calls[name]

    async def in_a_loop() -> None:
        call()

    twin = "aresult" if name == "App.result_of" else f"a{method}"
    with pytest.raises(semel.Misuse, match=rf"await .*\.{twin}\("):
        asyncio.run(in_a_loop())
    assert not list(tmp_path.iterdir()), "it has opened the store all the same"


def test_a_plain_block_and_a_plain_effect_inside_a_running_loop_are_misuse_too(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/a.db")
    effect = app.effect(intent=("to",))(mail)

    async def block() -> None:
        with app.work("k", kind="loop"):
            pass

    async def call() -> None:
        async with app.work("k", kind="loop"):
            effect("a@b")

    with pytest.raises(semel.Misuse, match=r"async with app\.work"):
        asyncio.run(block())
    with pytest.raises(semel.Misuse, match=r"asyncio\.to_thread\(mail"):
        asyncio.run(call())
    app.close()
