"""Reading the user's source: which line swallows, changes or never looks. It only finds lines; what happened, the records say."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
_CHANGING = {
    "uuid1": "uuid", "uuid4": "uuid", "uuid6": "uuid", "uuid7": "uuid", "now": "clock", "utcnow": "clock", "today": "clock",
    "time": "clock", "time_ns": "clock", "monotonic": "clock", "randint": "random", "random": "random", "choice": "random",
    "randrange": "random", "uniform": "random", "token_hex": "random", "token_urlsafe": "random", "urandom": "random",
    "getrandbits": "random",
}  # fmt: skip
_MODULES = ("uuid", "time", "datetime", "date", "random", "secrets", "os")


class Source:
    """A file, parsed; one that cannot be is empty."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.text = Path(path).read_text(encoding="utf-8")
            self.tree: ast.Module = ast.parse(self.text)
        except (OSError, SyntaxError, ValueError):
            self.text, self.tree = "", ast.Module([], [])
        self.functions = [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def around(self, line: int) -> Function | None:
        """The innermost function that holds a line, its decorators included."""
        held = [f for f in self.functions if _first_line(f) <= line <= (f.end_lineno or 0)]
        return max(held, key=lambda f: f.lineno, default=None)

    def declared(self, kind: str) -> Iterator[tuple[Function, ast.Call]]:
        """The functions under `@app.KIND(...)`, with the decorator."""
        for function in self.functions:
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and _last(decorator.func) == kind:
                    yield function, decorator


@lru_cache(maxsize=256)
def source(path: str) -> Source:
    """The file, read once."""
    return Source(path)


def _first_line(function: Function) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _last(node: ast.AST) -> str:
    """`b` of `a.b` and of `b`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _holds(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 0)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, without what stands in functions within it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, Function | ast.Lambda | ast.ClassDef):
            yield from own_nodes(child)


# --- except ---------------------------------------------------------------------------------------------------------------


def catches(handler: ast.ExceptHandler, names: tuple[str, ...]) -> bool:
    """Whether it catches one of these; a bare one catches all."""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(_last(kind) in names for kind in kinds)


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether what it caught goes on, on some way through it."""
    return any(
        isinstance(node, ast.Raise) and (node.exc is None or (isinstance(node.exc, ast.Name) and node.exc.id == handler.name))
        for node in own_nodes(handler)
    )


def swallowing(function: ast.AST) -> Iterator[tuple[ast.Try | ast.TryStar, ast.ExceptHandler]]:
    """The `except` clauses of a function that keep a suspension from leaving."""
    for node in own_nodes(function):
        if isinstance(node, ast.Try | ast.TryStar):
            for handler in node.handlers:
                if catches(handler, ("BaseException", "Suspended")):
                    if not raises_again(handler):
                        yield node, handler
                    break  # the first that catches it is the one that does


def swallower(places: Sequence[Sequence[object]]) -> tuple[str, int, str]:
    """Of the lines that a suspension passed through, innermost first: the file, the line and the words that stopped it."""
    for file, line, _ in places:
        assert isinstance(file, str) and isinstance(line, int)
        function = source(file).around(line)
        if function is None:
            continue
        around = [h for t, h in swallowing(function) if any(_holds(node, line) for node in t.body)]
        if around:
            handler = max(around, key=lambda h: h.lineno)
            return file, handler.lineno, "except BaseException" if handler.type is not None else "except:"
        for node in own_nodes(function):
            if isinstance(node, ast.Call) and _holds(node, line) and _returns_exceptions(node):
                return file, node.lineno, "gather(..., return_exceptions=True)"
            if isinstance(node, ast.With | ast.AsyncWith) and _holds(node, line) and any(map(_suppresses, node.items)):
                return file, node.lineno, "suppress(BaseException)"
    return "", 0, ""


def _returns_exceptions(call: ast.Call) -> bool:
    return _last(call.func) == "gather" and any(
        word.arg == "return_exceptions" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )


def _suppresses(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and _last(call.func) == "suppress" and any(_last(x) == "BaseException" for x in call.args)


def catcher(places: Sequence[Sequence[object]]) -> tuple[str, int]:
    """The innermost `except` around these lines; ("", 0) if there is none."""
    for file, line, _ in places:
        assert isinstance(file, str) and isinstance(line, int)
        function = source(file).around(line)
        for node in own_nodes(function) if function is not None else ():
            if isinstance(node, ast.Try) and node.handlers and any(_holds(one, line) for one in node.body):
                return file, node.handlers[0].lineno
    return "", 0


def repeater(places: Sequence[Sequence[object]]) -> tuple[str, int] | None:
    """Of the lines that led to a second request, innermost first: the one in a loop or a `try`; else the innermost."""
    for file, line, _ in places:
        assert isinstance(file, str) and isinstance(line, int)
        function = source(file).around(line)
        for node in own_nodes(function) if function is not None else ():
            if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.Try) and _holds(node, line):
                return file, line
    return (str(places[0][0]), int(str(places[0][1]))) if places else None


# --- what is another in each attempt --------------------------------------------------------------------------------------


def changing(node: ast.AST) -> tuple[str, int, str]:
    """What in an expression is another each time: uuid, clock, random or attempt; its line; its words. ("", 0, "") if nothing."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and (kind := _CHANGING.get(_last(one.func))) is not None:
            of_module = not isinstance(one.func, ast.Attribute) or any(
                _last(part) in _MODULES for part in ast.walk(one.func.value) if isinstance(part, ast.Name | ast.Attribute)
            )
            if of_module:
                return kind, one.lineno, f"{ast.unparse(one.func)}()"
        if isinstance(one, ast.Attribute) and one.attr == "attempt":
            return "attempt", one.lineno, ast.unparse(one)
    return "", 0, ""


def source_of(file: str, line: int) -> tuple[str, int, str]:
    """The same of the statement on a line, and of what its names were given in that function."""
    function = source(file).around(line)
    if function is None:
        return "", 0, ""
    statements = [node for node in own_nodes(function) if isinstance(node, ast.stmt)]
    here = [node for node in statements if _holds(node, line)]
    if not here:
        return "", 0, ""
    statement = min(here, key=lambda node: (node.end_lineno or 0) - node.lineno)
    found = changing(statement)
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    for _ in range(3):  # names of names
        if found[0]:
            break
        for node in statements:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(t, ast.Name) and t.id in names for target in targets for t in ast.walk(target)):
                    found = found if found[0] else changing(node.value)
                    names |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
    return found


# --- lookups and effects --------------------------------------------------------------------------------------------------


def not_found_line(file: str, line: int) -> int:
    """The line in a lookup that says NotFound, if there is one such line; else 0."""
    function = source(file).around(line)
    if function is None:
        return 0
    lines = {n.lineno for n in own_nodes(function) if isinstance(n, ast.Call) and _last(n.func) == "NotFound"}
    return lines.pop() if len(lines) == 1 else 0


def asks_nobody(file: str, line: int) -> bool:
    """Whether a lookup's code calls nothing but the verdicts: then nobody was asked, whatever cannot be seen from here."""
    function = source(file).around(line)
    if function is None:
        return False
    inner = [node for one in function.body for node in ast.walk(one)]
    calls = [node for node in inner if isinstance(node, ast.Call)]
    others = (ast.Await, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.Yield, ast.Subscript)
    verdicts = ("NotFound", "Confirmed", "Conflict", "Unavailable", "str", "print")
    known = {"semel", *(argument.arg for argument in (*function.args.posonlyargs, *function.args.args)[:1])}
    attributes = [node for node in inner if isinstance(node, ast.Attribute)]  # a property may ask, of anything but these
    return (
        all(_last(call.func) in verdicts for call in calls)
        and all(isinstance(node.value, ast.Name) and node.value.id in known for node in attributes)
        and not any(isinstance(node, others) for node in inner)
    )


def takes_errors_for_nothing(function: ast.AST) -> Iterator[ast.ExceptHandler]:
    """The `except` clauses of a lookup for any error, that answer NotFound."""
    for node in own_nodes(function):
        wide = isinstance(node, ast.ExceptHandler) and catches(node, ("Exception", "BaseException", "OSError", "ConnectionError"))
        if wide and any(isinstance(one, ast.Call) and _last(one.func) == "NotFound" for one in ast.walk(node)):
            assert isinstance(node, ast.ExceptHandler)
            yield node


def reads_no_key(file: str, line: int) -> bool:
    """Whether an effect's code never reads its submission's key, and hands the submission to nobody who might."""
    function = source(file).around(line)
    arguments = [*function.args.posonlyargs, *function.args.args] if function is not None else []
    if function is None or not arguments:
        return False
    name = arguments[0].arg
    read = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Attribute) and node.attr != "key"}
    return all(
        id(node) in read for one in function.body for node in ast.walk(one) if isinstance(node, ast.Name) and node.id == name
    )


def keyword_line(file: str, line: int, word: str) -> int:
    """The line of a keyword in the decorators of the function on a line; else 0."""
    function = source(file).around(line)
    for decorator in function.decorator_list if function is not None else ():
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == word:
                return keyword.value.lineno
    return 0


def intent_of(decorator: ast.Call) -> tuple[str, ...]:
    """The names in `intent=(...)` of a decorator."""
    for keyword in decorator.keywords:
        if keyword.arg == "intent" and isinstance(keyword.value, ast.Tuple | ast.List):
            return tuple(one.value for one in keyword.value.elts if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return ()


def intents_that_change(read: Source) -> Iterator[tuple[str, int, str, str]]:
    """Calls of an effect in a task's handler with what is another each time as an intent: its name, line, field, words."""
    effects = {function.name: (function, intent_of(decorator)) for function, decorator in read.declared("effect")}
    for handler, _ in read.declared("task"):
        for node in own_nodes(handler):
            if not isinstance(node, ast.Call) or _last(node.func) not in effects:
                continue
            function, intent = effects[_last(node.func)]
            names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1:]
            given = {**dict(zip(names, node.args, strict=False)), **{word.arg: word.value for word in node.keywords if word.arg}}
            for field in intent:
                kind, line, words = changing(given[field]) if field in given else ("", 0, "")
                if kind:
                    yield function.name, line, field, words


def lookups(read: Source) -> Iterator[Function]:
    """The functions that a file names in `Lookup(...)`."""
    names = {
        _last(node.args[0])
        for node in ast.walk(read.tree)
        if isinstance(node, ast.Call) and _last(node.func) == "Lookup" and node.args
    }
    return (function for function in read.functions if function.name in names)
