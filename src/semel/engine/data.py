"""Arguments and results are data (R10): validated by their annotations, recorded as JSON, decoded again as the type."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from semel.errors import Misuse
from semel.machine import redaction
from semel.machine.compact import compact
from semel.model import Json, Submission

SIZE_LIMIT = 1 << 20  # bytes of JSON, of one set of arguments or one result
MOST_SMALL = 8  # so many texts of a 64th of the limit, each character escaped, are still within it
_PLAIN = (str, int, bool, type(None))


class NotRecordable(Misuse):
    """A value that cannot be recorded, or a record that no longer fits; the message says why."""


def hints_of(fn: Callable[..., Any], what: str) -> dict[str, Any]:
    """The annotations of `fn`, resolved. Raises `Misuse` if one names what does not exist yet."""
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except Exception as error:
        raise Misuse(
            f"{what}: an annotation of {fn.__qualname__} cannot be resolved ({error}); "
            f"define or import the type above the function, at module level"
        ) from error


class Value:
    """One annotated value: validate, encode, decode."""

    def __init__(self, annotation: Any, what: str) -> None:
        self.annotation = annotation
        self.plain = annotation if annotation in _PLAIN else None
        try:
            self._adapter = adapter_of(annotation)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise Misuse(
                f"{what} is annotated {_name(annotation)}, which is not data that semel can record and hand to another "
                f"process; take plain data (str, int, a pydantic model, a dataclass) and get clients from the module"
            ) from error

    def validate(self, value: Any) -> Any:
        """The value as its type. Raises pydantic's ValidationError."""
        if self.plain is not None and type(value) is self.plain:
            return value
        return self._adapter.validate_python(value)

    def encode(self, value: Any) -> Json:
        """The value as JSON data. Raises `NotRecordable`."""
        if self.plain is not None and type(value) is self.plain:
            return value
        try:
            with_type = self._adapter.validate_python(value)
            return self._adapter.dump_python(with_type, mode="json", warnings="error")
        except ValidationError as error:
            raise NotRecordable(first_line(error)) from error
        except (PydanticSerializationError, ValueError, TypeError) as error:
            raise NotRecordable(str(error)) from error
        except Exception as error:  # of a validator or serializer of the user's own
            raise NotRecordable(f"{type(error).__name__}: {error}") from error

    def decode(self, data: Json) -> Any:
        """The value that JSON data stands for. Raises pydantic's ValidationError."""
        return data if self.plain is not None and type(data) is self.plain else self._adapter.validate_python(data)


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """The adapter of a type. NaN stays NaN, so that it is refused later, where pydantic would make it null."""
    try:
        return TypeAdapter(annotation, config=ConfigDict(ser_json_inf_nan="constants"))
    except PydanticUserError:
        return TypeAdapter(annotation)  # a model has a configuration of its own


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


def first_line(error: ValidationError) -> str:
    """A validation error in one line, without the input (which may be secret)."""
    found = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else str(found["msg"])


def _is_small(data: Json) -> bool:
    """Whether it is surely JSON, and far within the limit; False: one must look."""
    if type(data) is str:
        return len(data) < SIZE_LIMIT >> 6 and data.isascii()
    return data is None or type(data) is bool or (type(data) is int and -(2**63) < data < 2**63)


def check_size(data: Json, what: str) -> None:
    """Raises `NotRecordable` when `data` as JSON is over the limit, or is no JSON (NaN)."""
    try:
        size = len(compact(data).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise NotRecordable(f"{what} is not JSON: {error}") from error
    if size > SIZE_LIMIT:
        raise NotRecordable(f"{what} is {size} bytes of JSON, over the limit of {SIZE_LIMIT}: record a reference to it instead")


class Parameters:
    """A function's parameters as data. first: how many leading ones are not (the submission)."""

    def __init__(self, fn: Callable[..., Any], what: str, *, first: int) -> None:
        self.what = what
        hints = hints_of(fn, what)
        full = inspect.signature(fn)
        kept = list(full.parameters.values())[first:]
        for parameter in kept:
            self._check(parameter, hints)
        kept = [p.replace(annotation=hints[p.name]) for p in kept]
        self.signature = inspect.Signature(kept, return_annotation=hints.get("return", inspect.Signature.empty))
        self.values = {p.name: Value(hints[p.name], f"{what}: parameter {p.name!r}") for p in kept}
        self._names = tuple(self.values)
        self._plain = [value.plain for value in self.values.values()] if len(self._names) < MOST_SMALL else [None]
        self._in_order = len([p for p in kept if p.kind is not p.KEYWORD_ONLY])

    def _check(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Misuse(f"{self.what}: *{parameter.name} cannot be recorded by name; name each parameter")
        if parameter.name not in hints:
            raise Misuse(f"{self.what}: parameter {parameter.name!r} has no annotation; write {parameter.name}: str")
        if hints[parameter.name] is Submission:
            raise Misuse(f"{self.what}: the submission must be the first parameter, not {parameter.name!r}")

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Json]:
        """What was given, as JSON data by name: what `encode` makes of what `bind` gives. Raises `Misuse` as they do."""
        in_order = not kwargs and len(args) == len(self._names) == self._in_order
        if in_order and list(map(type, args)) == self._plain and all(map(_is_small, args)):
            return dict(zip(self._names, args, strict=True))  # all are as they are declared, and as they are recorded
        return self.encode(self.bind(args, kwargs))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The values by name, defaults included, each as its type. Raises `Misuse` that names the field."""
        values = {}
        for name, value in self._given(args, kwargs).items():
            try:
                values[name] = self.values[name].validate(value)
            except ValidationError as error:
                raise Misuse(f"{self.what}: {name} is not a {_name(self.values[name].annotation)}: {first_line(error)}") from None
        return values

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What was given by name, defaults included. All in order, as calls mostly are, needs no binding."""
        if not kwargs and len(args) == len(self._names) == self._in_order:
            return dict(zip(self._names, args, strict=True))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Misuse(f"{self.what}: {error}; its parameters are {self.signature}") from None
        bound.apply_defaults()
        return bound.arguments

    def encode(self, values: Mapping[str, Any]) -> dict[str, Json]:
        """JSON data by name. Raises `Misuse` that names the field."""
        data: dict[str, Json] = {}
        for name, value in values.items():
            try:
                data[name] = self.values[name].encode(value)
                if self.values[name].plain is None:
                    check_size(data[name], "it")
                    self.values[name].decode(data[name])  # what is recorded must be readable again, in another process
                    self._no_marker(name, data[name])
            except NotRecordable as error:
                raise Misuse(f"{self.what}: {name} cannot be recorded: {error}; pass plain data") from None
            except ValidationError as error:
                why = f"it does not read the same again: {first_line(error)}"
                raise Misuse(f"{self.what}: {name} cannot be recorded: {why}; pass plain data") from None
        if len(data) < MOST_SMALL and all(map(_is_small, data.values())):
            return data
        try:
            check_size(data, "the set of arguments")
        except NotRecordable as error:
            raise Misuse(f"{self.what}: {error}") from None
        return data

    def _no_marker(self, name: str, data: Json) -> None:
        if redaction.looks_marked(data):
            raise NotRecordable(
                f"it holds {redaction.MARK!r}, by which semel knows what it redacted itself: give that another name"
            )

    def decode(self, data: Mapping[str, Json], only: Collection[str] | None = None) -> dict[str, Any]:
        """Values by name (`only` these), from the record. Raises `NotRecordable` when the code has changed so that it cannot."""
        values = {}
        for name, value in self.values.items():
            if only is not None and name not in only:
                continue
            if redaction.mark_of(data.get(name)) is not None:
                raise NotRecordable(f"{self.what}: the recorded {name} is redacted, and only the call itself knew it")
            if name in data:
                try:
                    values[name] = value.decode(data[name])
                except ValidationError as error:
                    raise NotRecordable(f"{self.what}: the recorded {name} no longer fits: {first_line(error)}") from None
            elif self.signature.parameters[name].default is inspect.Parameter.empty:
                raise NotRecordable(f"{self.what}: nothing is on record for the parameter {name!r}")
        return values


class Result:
    """A function's result as data."""

    def __init__(self, fn: Callable[..., Any], what: str) -> None:
        hints = hints_of(fn, what)
        if "return" not in hints:
            raise Misuse(f"{what}: its result has no annotation, and is recorded; write -> str (or -> None)")
        self._value = Value(hints["return"], f"{what}: its result")

    def encode(self, value: Any) -> Json:
        """JSON data. Raises `NotRecordable`."""
        data = self._value.encode(value)
        if not _is_small(data):
            check_size(data, "the result")
        return data

    def decode(self, data: Json) -> Any:
        """The result as its type. Raises `NotRecordable` when the code has changed so that it cannot read it."""
        try:
            return self._value.decode(data)
        except ValidationError as error:
            raise NotRecordable(f"the recorded result no longer fits its annotation: {first_line(error)}") from None
