"""`dataclasses.replace` for the machine's states, which have many fields: less than half of its time."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import replace
else:

    @cache
    def _shape(cls: type) -> tuple[Any, dict[str, int]]:
        names = [f.name for f in fields(cls)]
        return attrgetter(*names), {name: n for n, name in enumerate(names)}

    def replace(state: Any, /, **changes: Any) -> Any:
        """A copy with these fields changed. Raises `KeyError` for a name that is no field."""
        cls = type(state)
        get, places = _shape(cls)
        values = list(get(state))
        for name, value in changes.items():
            values[places[name]] = value
        return cls(*values)


__all__ = ["replace"]
