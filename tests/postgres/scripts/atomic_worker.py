"""A worker with an Atomic effect, that kills itself at a place of its commit, once."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel
from semel.store import pgatomic

app = semel.App(os.environ["SEMEL_TEST_URL"], lease=timedelta(seconds=4))
DIED = Path(os.environ["SEMEL_TEST_DIED"])


def die(at: str) -> None:
    if os.environ["SEMEL_TEST_DIE_AT"] == at and not DIED.exists():
        DIED.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Mortal(pgatomic.Lent):
    def _commit(self) -> Any:
        die("confirmed")
        outcome = super()._commit()
        die("committed")
        return outcome


pgatomic.Lent = Mortal  # type: ignore[misc]


@app.effect(intent=("id",), recovery=semel.Atomic())
async def pay(submission: semel.Submission, id: str) -> str:
    await submission.connection.execute("INSERT INTO paid (id, key) VALUES (%s, %s)", (id, submission.key))
    die("written")
    return "paid"


@app.task(intent=("id",))
async def bill(id: str) -> str:
    return await pay(id)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        bill.enqueue("o1")
    else:
        app.run_worker(until_idle=True)
    app.close()
