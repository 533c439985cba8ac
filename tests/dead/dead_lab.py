"""A kind that bills: draft, charge, render, send. Its render is broken until it is mended, and its bank is moody."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import semel

NOW = timedelta(0)


class Reset(Exception):
    """A connection that was cut: it proves nothing."""


class Billing:
    """An app, and the world that it acts on. acts: what really happened there, by effect and order, lookups included.

    By the order's last digit, until it is mended: 6: the bank acts, and the reply is lost; 7: the connection is cut before it
    acts; 8: it refuses for good. bank, for orders that begin with r: "open"; "refuses" connections; "loses" replies, and
    cannot be asked; "muddles", and then only a person can tell.
    """

    def __init__(self, store: str = "sqlite:///never-made.db") -> None:
        self.app = app = semel.App(store)
        self.mended, self.bank = False, "open"
        self.greedy: set[str] = set()
        self.acts: list[tuple[str, str]] = []
        self._lock = threading.Lock()

        def find_charge(submission: semel.Submission, order: str) -> semel.Verdict:
            if order.startswith("r") and self.bank == "muddles":
                return semel.Conflict("there are two of them")
            if order.startswith("r") and self.bank != "open":
                return semel.Unavailable("the bank is closed", retry_after=timedelta(seconds=30))
            found = ("charge", order) in self.acts
            self.act("lookup", order)
            return semel.Confirmed(f"ch_{order}") if found else semel.NotFound()

        @app.step()
        def draft(order: str) -> str:
            return f"Dear customer, order {order}."

        @app.effect(
            intent=("order",), recovery=[semel.Lookup(find_charge, settle=NOW)], tries=1, scope="tenant",
            not_done=(ConnectionRefusedError,),
        )  # fmt: skip
        def charge(submission: semel.Submission, order: str) -> str:
            mood = "" if self.mended else order[-1]
            if order.startswith("r"):
                mood = {"open": "", "refuses": "refuses", "loses": "6", "muddles": "6"}[self.bank]
            if mood == "refuses":
                raise ConnectionRefusedError
            if mood == "8":
                raise semel.NotDone("no such account", retry=False)
            if mood == "7":
                raise Reset
            self.act("charge", order)
            if mood == "6":
                raise Reset
            return f"ch_{order}"

        @app.step()
        def render(order: str) -> str:
            if not self.mended:
                raise ValueError("the template is broken")
            return f"<p>{order}</p>"

        @app.effect(intent=("order", "to"))
        def send(submission: semel.Submission, order: str, to: str) -> str:
            self.act("send", order)
            return f"mail_{order}"

        @app.task(intent=("order",), retry=semel.Retry(max_attempts=1))
        def bill(order: str) -> str:
            draft(order)
            try:
                charge(order)
            except semel.NotDone as refused:
                if "no such account" not in str(refused):
                    raise
            render(order)
            sent = send(order, "customer")
            if order in self.greedy:
                try:
                    send(order, "everybody")
                except Exception:
                    return "it got away with it"
            return sent

        @app.task(intent=("order",))
        def collect(order: str) -> str:
            return charge(order)

        self.bill, self.collect, self.charge, self.send = bill, collect, charge, send

    def act(self, effect: str, order: str) -> None:
        with self._lock:
            self.acts.append((effect, order))

    def count(self) -> Counter[str]:
        """How often the provider really did each."""
        return Counter(effect for effect, _ in self.acts if effect != "lookup")

    def finished(self, h: Any, many: int = 3) -> None:
        """So many that ended well, before the template broke."""
        self.mended = True
        for n in range(many):
            self.bill.enqueue(f"done{n}-0")
        h.run()
        self.mended = False

    def died(self, h: Any, *orders: str) -> list[semel.Ref[str]]:
        """So many that did not."""
        refs = [self.bill.enqueue(order) for order in orders]
        h.run()
        assert {self.app.tasks.get(ref).delivery for ref in refs} <= {"dead_lettered"}
        return refs
