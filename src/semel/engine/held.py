"""The tasks that a process knows to be its own (R17)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

Place = tuple[str, str]  # tenant, task
Registered = tuple[str, str, int]  # and the token of the claim


class Held:
    """Claims that a session has not come to the end of, each noted before it lands. What the store says is in flight for the
    session, and is not among these, the beat's check gives back.

    By token, since one transaction can write down the end of an attempt and the next claim of the same task: the end of the one
    must not let go of the other.
    """

    def __init__(self) -> None:
        self._tokens: dict[Place, set[int]] = {}
        self._lock = threading.RLock()  # what the collector closes may let go of something in the middle of any of this

    def add(self, tenant: str, task: str, token: int) -> None:
        """It will be claimed with this token."""
        with self._lock:
            self._tokens.setdefault((tenant, task), set()).add(token)

    def drop(self, tenant: str, task: str, token: int) -> None:
        """That claim is over, or was never had."""
        with self._lock:
            tokens = self._tokens.get((tenant, task), set())
            tokens.discard(token)
            if not tokens:
                self._tokens.pop((tenant, task), None)

    def drop_all(self, claims: Iterable[Registered]) -> None:
        """The same of several."""
        for claimed in claims:
            self.drop(*claimed)

    def clear(self) -> None:
        """Nothing is held."""
        with self._lock:
            self._tokens.clear()

    def __iter__(self) -> Iterator[Registered]:
        with self._lock:
            return iter([(*place, token) for place, tokens in self._tokens.items() for token in tokens])

    def __contains__(self, place: Place) -> bool:
        return place in self._tokens

    def __len__(self) -> int:
        return len(self._tokens)
