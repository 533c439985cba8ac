"""One PostgreSQL transaction: an order is enqueued with it, and an effect writes in it.

The order and its task are there together, or neither. The effect `pay` writes in the ledger's own database (`Atomic()`):
its writes are committed together with the record of them. The connection is cut in the middle of its commit, twice: once
before the server has heard of it, once after. Each time the journal says what happened, and nobody is asked.

Needs psycopg, and a PostgreSQL: one is started for it, if the server's programs are installed.

    python examples/one_transaction.py
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import psycopg

import semel
from semel.store import pgatomic
from semel.testing import postgres

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="semel-example-")  # where a process keeps what it saw of a store


@contextlib.contextmanager
def shop() -> Iterator[tuple[str, semel.App]]:
    """A database for this example, with the shop's tables, and an app on it."""
    with postgres.server() as server, postgres.database(server, f"semel_example_{os.getpid()}") as url:
        with psycopg.connect(url) as db:
            db.execute("CREATE TABLE orders (id text PRIMARY KEY); CREATE TABLE payments (order_id text, cents bigint)")
        app = semel.App(url)
        try:
            yield url, app
        finally:
            app.close()


def cut(before: bool) -> None:
    """From now on, once: the connection of an effect is cut just before its COMMIT is sent, or just after it was answered."""
    commit = pgatomic.Lent._commit

    def cut_once(lent: Any) -> Any:
        pgatomic.Lent._commit = commit  # type: ignore[method-assign]
        if not before:
            commit(lent)
        lent._link.raw.pgconn.finish()  # its socket is closed, and nobody here knows whether the COMMIT arrived
        return pgatomic.Unanswered(ConnectionError("cut"))

    pgatomic.Lent._commit = cut_once  # type: ignore[method-assign]


def main() -> None:
    """Enqueue with an order; pay it; be cut."""
    with shop() as (url, app):

        @app.effect(intent=("order_id",), material=("cents",), recovery=semel.Atomic())
        def pay(submission: semel.Submission, order_id: str, cents: int) -> str:
            submission.connection.execute("INSERT INTO payments VALUES (%s, %s)", (order_id, cents))
            return f"paid {order_id}"

        @app.task(intent=("order_id",))
        def settle(order_id: str) -> str:
            return pay(order_id, 4200)

        with psycopg.connect(url) as db:
            for order_id, stays in (("o1", False), ("o2", True), ("o3", True)):
                db.execute("INSERT INTO orders VALUES (%s)", (order_id,))
                settle.using(transaction=db).enqueue(order_id)
                (db.commit if stays else db.rollback)()
            print("orders:", [row[0] for row in db.execute("SELECT id FROM orders ORDER BY id")])
            print("tasks: ", sorted(view.key for view in app.tasks.list()))
            for order_id, before in (("o2", True), ("o3", False)):
                cut(before)
                result = settle.run(order_id)
                kinds = [event.kind for event in app.journal(settle.enqueue(order_id))]  # the same key: the same task
                print(f"cut {'before' if before else 'after'} the server heard of it: {result}; {' '.join(kinds[2:])}")
            print("payments:", db.execute("SELECT order_id, cents FROM payments ORDER BY order_id").fetchall())


if __name__ == "__main__":
    main()
