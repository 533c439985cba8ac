"""`run_locker.py URL SECONDS`: another program that lets nobody write to the store for a while."""

import sys
import time


def lock_file(path: str, seconds: float) -> None:
    """The write lock of a SQLite file."""
    import apsw

    connection = apsw.Connection(path)
    connection.set_busy_timeout(20000)
    connection.execute("BEGIN IMMEDIATE")
    print("locked", flush=True)
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()


def lock_tables(url: str, seconds: float) -> None:
    """All that claims, intents and beats write, as a careless migration would; reading is allowed, as with a file."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE semel.session, semel.living, semel.task, semel.journal IN EXCLUSIVE MODE")
        print("locked", flush=True)
        time.sleep(seconds)


if __name__ == "__main__":
    where, sleep = sys.argv[1], float(sys.argv[2])
    if where.startswith("sqlite:///"):
        lock_file(where.removeprefix("sqlite:///"), sleep)
    else:
        lock_tables(where, sleep)
