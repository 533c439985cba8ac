"""A store that holds a lot: the rows of one real task, in every table, once more for each of very many.

What is copied has its own id and key. Only its hashes are those of the first: nobody reads them, since it is never claimed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

TABLES = ("journal", "task", "task_key", "ready", "effect", "unknown")
CHUNK = 100_000
DIGITS = 8


class Filler:
    """execute: a statement to the store's own connection, or to one more; rows as tuples."""

    def __init__(self, dialect: str, execute: Callable[[str], Any]) -> None:
        self._sqlite, self._execute = dialect == "sqlite", execute
        self._n = f"printf('%0{DIGITS}d', n)" if self._sqlite else f"lpad(n::text, {DIGITS}, '0')"
        self._columns = {table: self._columns_of(table) for table in TABLES}

    def _columns_of(self, table: str) -> list[str]:
        ask = (
            f"SELECT name FROM pragma_table_info('{table}')"
            if self._sqlite
            else f"SELECT column_name FROM information_schema.columns WHERE table_schema = 'semel' AND table_name = '{table}'"
        )
        return [name for (name,) in self._execute(ask).fetchall()]

    def copy(self, task: str, rows: int, **instead: str) -> None:
        """The task with this id so many times. instead: SQL for a column's value, of n; {was} is what it was."""
        for low in range(1, rows + 1, CHUNK):
            high = min(rows, low + CHUNK - 1)
            for table, columns in self._columns.items():
                self._execute(self._statement(table, columns, task, low, high, instead))

    def _statement(self, table: str, columns: list[str], task: str, low: int, high: int, instead: dict[str, str]) -> str:
        prefix = "" if self._sqlite else "semel."
        new = {
            "task": f"t.task || '-' || {self._n}",
            "stream": f"t.stream || '-' || {self._n}",
            "key": f"t.key || '-' || {self._n}",
        }
        new |= {column: value.format(was=f"t.{column}") for column, value in instead.items()}
        values = ", ".join(new.get(column, f"t.{column}") for column in columns)
        mine = f"SELECT * FROM {prefix}{table} WHERE {'stream' if table == 'journal' else 'task'} = '{task}'"
        series = (
            f"(WITH RECURSIVE s(n) AS (SELECT {low} UNION ALL SELECT n + 1 FROM s WHERE n < {high}) SELECT n FROM s) AS s"
            if self._sqlite
            else f"generate_series({low}, {high}) AS s (n)"
        )
        return f"INSERT INTO {prefix}{table} ({', '.join(columns)}) SELECT {values} FROM ({mine}) AS t CROSS JOIN {series}"


@contextlib.contextmanager
def filler(dialect: str, url: str) -> Iterator[Filler]:
    """Of a store that nobody in this process has opened. What it writes need not be durable at once."""
    if dialect == "sqlite":
        import apsw

        db = apsw.Connection(url.removeprefix("sqlite:///"))
        db.execute("PRAGMA synchronous=OFF")
        try:
            yield Filler(dialect, db.execute)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute("SET synchronous_commit = off")
        server.execute("SET enable_seqscan = off")
        yield Filler(dialect, server.execute)
        server.execute("CHECKPOINT")


def task_of(dialect: str, url: str) -> str:
    """The id of the one task in a store that holds no other."""
    with filler(dialect, url) as found:
        prefix = "" if dialect == "sqlite" else "semel."
        ((task,),) = found._execute(f"SELECT task FROM {prefix}task").fetchall()
    return str(task)
