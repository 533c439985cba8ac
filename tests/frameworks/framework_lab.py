"""Effects and a step as a user would write them, to be handed to agent frameworks as tools, and what they really did."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import semel


class Receipt(BaseModel):
    """What a charge gives."""

    id: str
    cents: int


class Lab:
    """An app on a real file. did: what was really done, in order; slow: how long each call takes, in seconds."""

    def __init__(self, folder: Path) -> None:
        self.app = app = semel.App(f"sqlite:///{folder}/lab.db")
        self.did: list[tuple[str, ...]] = []
        self.slow = 0.05
        self.breaks = False
        self.lock = threading.Lock()
        did = self._did

        @app.effect(intent=("invoice_id",), material=("cents",))
        async def charge(submission: semel.Submission, invoice_id: str, cents: int, note: str = "") -> Receipt:
            """Charge one invoice.

            Args:
                invoice_id: Which invoice.
                cents: How much, in cents.
                note: A word for the bank statement.
            """
            await asyncio.sleep(self.slow)
            did("charge", invoice_id)
            return Receipt(id=f"r-{invoice_id}", cents=cents)

        @app.effect(intent=("to",))
        def mail(submission: semel.Submission, to: str, body: str) -> str:
            """Send a mail.

            Args:
                to: The address.
                body: The text.
            """
            threading.Event().wait(self.slow)
            did("mail", to)
            return f"mail to {to}"

        @app.step()
        async def search(query: str, limit: int = 3) -> list[str]:
            """Search the archive.

            Args:
                query: What to look for.
                limit: How many at most.
            """
            did("search", query)
            return [query] * limit

        self.charge, self.mail, self.search = charge, mail, search

    def _did(self, *what: str) -> None:
        if self.breaks:
            raise TimeoutError("the provider did not answer")
        with self.lock:
            self.did.append(what)

    def task(self, handler: Callable[..., Any]) -> Any:
        """The handler as a task, keyed "t"."""
        return self.app.task(intent=())(handler).using(key="t")

    def confirmed(self) -> int:
        """How many effects are on record as confirmed."""
        return len(self.app.effects.list(state="confirmed"))


def without_submission(schema: dict[str, Any], described: dict[str, str]) -> None:
    """A tool's JSON schema has just the effect's parameters, with their descriptions."""
    assert list(schema["properties"]) == list(described)
    assert {name: found.get("description") for name, found in schema["properties"].items()} == described
    assert "ubmission" not in str(schema)


CHARGE = {"invoice_id": "Which invoice.", "cents": "How much, in cents.", "note": "A word for the bank statement."}
MAIL = {"to": "The address.", "body": "The text."}
SEARCH = {"query": "What to look for.", "limit": "How many at most."}
