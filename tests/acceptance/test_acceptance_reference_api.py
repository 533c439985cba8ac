"""docs/reference/api.md against the code: every public name, every parameter, every field; and nothing that is not there."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from typing import Any

import pytest
from acceptance_pages import DOCS, blocks

import semel
import semel.app
import semel.testing
import semel.testing.crashtest
import semel.testing.provider as provider

PAGE = DOCS / "reference" / "api.md"
FAMILIES = {"Tasks": semel.app.Tasks, "Effects": semel.app.Effects, "Review": semel.app.Review}
MODULES = (semel, semel.testing, semel.testing.crashtest, provider)
# What other parts of semel call on public objects, and users do not.
INTERNAL = {
    "App": {
        "runtime", "open_store", "expect_store", "load", "be_worker", "tenant_of", "within", "locate", "address", "opened",
        "accept", "aaccept", "accept_many", "aaccept_many", "run_here", "expect_postgres", "result_of", "aresult_of",
    },
    "Effects": {"row"},
    "Task": {"order"},
    "VirtualClock": {"pause"},
}  # fmt: skip
NOT_FOR_USERS = {"App", "Call", "Task", "Work", "Submission", "Ref", "Provider", "VirtualClock"}  # made by others, or shown above
Shape = list[tuple[str, str, bool]]  # name, kind, has a default


def documented() -> tuple[dict[str, Any], set[str]]:
    """By "Class.method" or "function": the parameters, or None for a field; and the names of classes and aliases."""
    members: dict[str, Any] = {}
    names: set[str] = set()
    for block in blocks(PAGE):
        if block.language != "python":
            continue
        for node in ast.parse(block.text).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        members[f"{node.name}.{inner.name}"] = shape_of_node(inner)
                    elif isinstance(inner, ast.AnnAssign):
                        assert isinstance(inner.target, ast.Name)
                        members[f"{node.name}.{inner.target.id}"] = None
            elif isinstance(node, ast.FunctionDef):
                names.add(node.name)
                members[node.name] = shape_of_node(node)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return members, names


def shape_of_node(node: ast.FunctionDef) -> Shape:
    """A stub's parameters, without self and cls."""
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    defaults = [False] * (len(positional) - len(args.defaults)) + [True] * len(args.defaults)
    shape: Shape = [(arg.arg, "positional", has) for arg, has in zip(positional, defaults, strict=True)]
    shape += [(args.vararg.arg, "*", False)] if args.vararg else []
    shape += [(arg.arg, "keyword", d is not None) for arg, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    shape += [(args.kwarg.arg, "**", False)] if args.kwarg else []
    return [one for one in shape if one[0] not in ("self", "cls")]


def shape_of(fn: Any) -> Shape:
    """The code's parameters, in the same terms."""
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    parameters = inspect.signature(fn).parameters.values()
    return [
        (p.name, kinds[p.kind], p.default is not inspect.Parameter.empty) for p in parameters if p.name not in ("self", "cls")
    ]


MEMBERS, NAMES = documented()


def public_classes() -> dict[str, type]:
    found = {name: value for module in MODULES for name in module.__all__ if inspect.isclass(value := getattr(module, name))}
    return {**found, **FAMILIES}


CLASSES = public_classes()


def public_methods(name: str) -> dict[str, Any]:
    """The methods of its own that a user may call."""
    cls = CLASSES[name]
    found: dict[str, Any] = {}
    for attribute, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        hidden = attribute.startswith("_") or attribute in INTERNAL.get(name, ())
        if inspect.isfunction(plain) and not hidden:
            found[attribute] = plain
    return found


def twin_of(methods: dict[str, Any], attribute: str) -> str | None:
    """The plain method whose awaitable twin this is."""
    return attribute[1:] if attribute.startswith("a") and attribute[1:] in methods else None


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_there(module: Any) -> None:
    assert set(module.__all__) - NAMES == set()


def test_nothing_is_there_that_does_not_exist() -> None:
    known = set(CLASSES) | {name for module in MODULES for name in module.__all__}
    assert NAMES - known == set()
    pairs = [member.split(".") for member in MEMBERS if "." in member]
    assert [f"{name}.{attribute}" for name, attribute in pairs if not has(CLASSES[name], attribute)] == []


def has(cls: type, attribute: str) -> bool:
    """Whether its instances have it: a method, a property, a field, or set by the constructor."""
    annotated = any(attribute in vars(base).get("__annotations__", {}) for base in cls.__mro__)
    return hasattr(cls, attribute) or annotated or re.search(rf"\bself\.{attribute}\b.*=", inspect.getsource(cls)) is not None


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_methods_are_there_with_their_parameters(name: str) -> None:
    methods = public_methods(name)
    for attribute, fn in methods.items():
        plain = twin_of(methods, attribute)
        if plain is not None:
            assert shape_of(fn) == shape_of(methods[plain]), f"{name}.{attribute} is no twin of {plain}"
            continue
        assert f"{name}.{attribute}" in MEMBERS, f"{name}.{attribute} is public and not in {PAGE.name}"
        if attribute not in ("fake",):  # overloaded: the page shows its shape at run time
            assert MEMBERS[f"{name}.{attribute}"] == shape_of(fn), f"{name}.{attribute}"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_constructors_are_there_with_their_parameters(name: str) -> None:
    cls = CLASSES[name]
    shown = MEMBERS.get(f"{name}.__init__")
    if shown is not None:
        assert shown == shape_of(cls)
        return
    own = "__init__" in vars(cls) and inspect.isfunction(vars(cls)["__init__"]) and not getattr(cls, "_is_protocol", False)
    if dataclasses.is_dataclass(cls):
        fields = [field.name for field in dataclasses.fields(cls) if field.repr]
        missing = [field for field in fields if f"{name}.{field}" not in MEMBERS]
        assert not missing, f"fields of {name} that are not in {PAGE.name}"
    elif own:
        assert name in NOT_FOR_USERS, f"the constructor of {name} is not in {PAGE.name}"


def test_functions_are_there_with_their_parameters() -> None:
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                assert MEMBERS[name] == shape_of(value), name


def test_defaults_are_the_real_ones() -> None:
    """Numbers and durations that people rely on."""
    text = PAGE.read_text(encoding="utf-8")
    real = inspect.signature(semel.App.effect).parameters
    assert f"tries: int = {real['tries'].default}," in text
    assert real["timeout"].default.total_seconds() == 30
    assert "timeout: timedelta = timedelta(seconds=30)," in text
    lease = inspect.signature(semel.App).parameters["lease"].default
    assert f"lease: timedelta = timedelta(seconds={lease.seconds})" in text
    retry = semel.Retry()
    assert f"max_attempts: int = {retry.max_attempts}, max_crashes: int = {retry.max_crashes}" in text
    assert retry.backoff.total_seconds() == 2
    assert semel.Ask().settle.total_seconds() == 300
    assert "timedelta(minutes=5)" in text
