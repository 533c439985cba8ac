"""The machine's states, commands and events: dataclasses that nobody changes, cheap to make and to copy with changes.

`dataclass(frozen=True)` makes each object by a call for every field, which was most of what a decision cost. These are frozen
to the type checker, which reads every line of semel, and cost at run time what a class with slots costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

T = TypeVar("T")
_COPIES: dict[type, Callable[[Any], Any]] = {}  # by class: gives a copy of one of its objects


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """To a type checker a frozen dataclass. Compared and hashed by its fields."""
    made: Any = dataclass(slots=True, unsafe_hash=True)(cls)
    lines = ["def copy(old):", "one = new(cls)", *(f"one.{f.name} = old.{f.name}" for f in fields(made)), "return one"]
    names: dict[str, Any] = {"new": object.__new__, "cls": made}
    exec("\n    ".join(lines), names)  # noqa: S102 - as dataclasses makes `__init__`: a loop over the names takes six times as long
    _COPIES[made] = names["copy"]
    return made  # type: ignore[no-any-return]


if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(state: Any, /, **changes: Any) -> Any:
        """A copy of a record with these fields changed. Raises `AttributeError` for a name that is no field."""
        changed = _COPIES[type(state)](state)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed


__all__ = ["record", "replace"]
