"""The machine's states, commands and events: frozen dataclasses with slots that are cheap to make and to change.

A frozen dataclass sets each of its fields by a call, which was most of what a decision cost. Here a new object is of an open
twin of its class (the same slots, and they may be set) until all its fields are set; from then on it is of its class, frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

T = TypeVar("T")
_COPIES: dict[type, Callable[[Any], Any]] = {}  # by class: gives an open copy of one of its objects


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """`dataclass(frozen=True, slots=True)`, whose objects are made and changed in a fraction of the time."""
    made: Any = dataclass(frozen=True, slots=True)(cls)
    opened = type(cls.__name__, (made,), {
        "__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__, "__module__": cls.__module__,
    })  # fmt: skip
    names: dict[str, Any] = {"Open": opened, "new": object.__new__, "turn": object.__setattr__, "MISSING": MISSING}
    takes, sets = ["self"], []
    for f in fields(made):
        taken, value = _taken(f)
        takes.append(taken)
        sets.append(f"self.{f.name} = {value}")
        names |= {f"default_{f.name}": f.default, f"make_{f.name}": f.default_factory}
    made.__init__ = _function(
        "__init__", takes, ["cls = self.__class__", "turn(self, '__class__', Open)", *sets, "self.__class__ = cls"], names
    )
    made.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    copied = [f"self.{f.name} = old.{f.name}" for f in fields(made)]
    _COPIES[made] = _function("copy", ["old"], ["self = new(Open)", *copied, "return self"], names)
    return made  # type: ignore[no-any-return]


def _taken(f: Field[Any]) -> tuple[str, str]:
    """A field as `__init__` takes it, and its value there."""
    if f.default_factory is not MISSING:
        return f"{f.name}=MISSING", f"make_{f.name}() if {f.name} is MISSING else {f.name}"
    return (f.name if f.default is MISSING else f"{f.name}=default_{f.name}"), f.name


def _function(name: str, takes: list[str], lines: list[str], names: dict[str, Any]) -> Any:
    """A function of this text, as dataclasses makes its own: one that loops over the fields would take as long as before."""
    exec("\n    ".join([f"def {name}({', '.join(takes)}):", *lines]), names)  # noqa: S102 - names of fields, and nothing else
    return names[name]


if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(state: Any, /, **changes: Any) -> Any:
        """A copy of a record with these fields changed. Raises `AttributeError` for a name that is no field."""
        cls = state.__class__
        changed = _COPIES[cls](state)
        for name, value in changes.items():
            setattr(changed, name, value)
        changed.__class__ = cls
        return changed


__all__ = ["record", "replace"]
