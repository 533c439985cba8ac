"""Numbers in sentences."""

from __future__ import annotations


def count(n: int, one: str, many: str = "") -> str:
    """1 effect, 2 effects, no effects."""
    return f"{n or 'no'} {one if n == 1 else many or one + 's'}"


def times(n: int) -> str:
    """1 time, 2 times, 0 times."""
    return f"{n} time{'' if n == 1 else 's'}"
