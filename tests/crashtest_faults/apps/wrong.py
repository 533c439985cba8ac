"""Each fault in other clothes. The line that is wrong says so: WRONG, and the words that its finding must hold."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import smtplib
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")
SOON = semel.Retry(backoff=timedelta(seconds=0.05))
HOUR = semel.Resend(within=timedelta(hours=1))

app = semel.App()
client = httpx.AsyncClient()
SENT: set[str] = set()


# --- effects outside @app.effect ---


def notify(text: str) -> None:
    """Called from a handler."""
    body = b'{"text":"x"}'
    request = urllib.request.Request(f"{PROVIDER}/opaque/notify", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).read()  # WRONG: sent POST /opaque/… to 127.0.0.1


@app.task(intent=("name",), retry=SOON)
def outside(name: str) -> None:
    """A plain handler that does all kinds of things."""
    notify(name)
    subprocess.run(["/bin/true", name])  # WRONG: started the process '/bin/true
    os.system("true")  # WRONG: started the process 'true'
    Path("out.txt").write_text(name)  # WRONG: changed the file
    with Path("out.log").open("a") as file:  # WRONG: changed the file
        file.write(name)
    Path("out.txt").unlink()  # WRONG: changed the file
    with contextlib.closing(sqlite3.connect("own.db")) as own:
        own.execute("CREATE TABLE IF NOT EXISTS t (x)")  # WRONG: changed a SQLite database (CREATE TABLE
    with ThreadPoolExecutor() as pool:
        pool.submit(post, f"{PROVIDER}/opaque/pool", {"a": 1}).result()  # WRONG: sent POST /opaque/…


@app.task(intent=("name",), retry=SOON)
async def outside_async(name: str) -> None:
    """An async one."""
    await client.post(f"{PROVIDER}/opaque/httpx", json={"a": name})  # WRONG: sent POST /opaque/… to 127.0.0.1
    await asyncio.gather(*[client.post(f"{PROVIDER}/opaque/tasks", json={}) for _ in "ab"])  # WRONG: sent POST /opaque/…
    await asyncio.get_running_loop().run_in_executor(None, post, f"{PROVIDER}/opaque/run", {})  # WRONG: sent POST /opaque/…
    host, port = PROVIDER.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))  # WRONG: opened a connection to 127.0.0.1
    writer.close()
    await asyncio.to_thread(mail, name)


def mail(name: str) -> None:
    """Mail without HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=answer, args=(listener,), daemon=True).start()
    with contextlib.suppress(smtplib.SMTPException, OSError), smtplib.SMTP(*listener.getsockname()) as smtp:
        smtp.sendmail("a@b.example", [f"{name}@b.example"], "hello")  # WRONG: opened a connection to 127.0.0.1
    listener.close()


def answer(listener: socket.socket) -> None:
    """A mail server that has no time."""
    peer, _ = listener.accept()
    peer.sendall(b"220 hello\r\n")
    peer.recv(100)
    peer.close()


# --- keys that change ---


def break_down() -> None:
    """The first attempt fails behind its effect."""
    if semel.current().attempt == 1:
        raise RuntimeError("the model's API is down")


@app.effect(intent=("what",), recovery=HOUR)
async def do(submission: semel.Submission, what: dict[str, Any]) -> str:
    """Something."""
    answer = await asyncio.to_thread(post, f"{PROVIDER}/keyed/do", what, key=submission.key, timeout=submission.seconds_left)
    return str(answer["id"])


@app.task(intent=("name",), retry=SOON)
async def with_clock(name: str) -> str:
    """The time, inside a value."""
    when = datetime.now(UTC).isoformat()
    done = await do({"name": name, "when": when})  # WRONG: what.when= | the time (datetime.now()
    break_down()
    return done


@app.task(intent=("name",), retry=SOON)
async def with_attempt(name: str) -> str:
    """The attempt's number."""
    done = await do({"name": f"{name}-{semel.current().attempt}"})  # WRONG: the attempt's number | leave the attempt out
    break_down()
    return done


def drawn() -> int:
    """Out of sight."""
    return random.randrange(10**6, 10**7)


@app.task(intent=("name",), retry=SOON)
async def with_random(name: str) -> str:
    """A number that only its values betray."""
    done = await do({"name": name, "number": drawn()})  # WRONG: what.number= | a random number
    break_down()
    return done


@app.task(intent=("name",), retry=SOON)
async def with_stamp(name: str) -> str:
    """A time that only its values betray."""
    stamp = int(getattr(time, "time")() * 1000)  # noqa: B009
    done = await do({"name": name, "id": f"run-{stamp}"})  # WRONG: what.id= | the time
    break_down()
    return done


@app.task(intent=("name",), retry=SOON)
async def with_occurrence(name: str) -> str:
    """An occurrence that is another each time."""
    words = os.urandom(1).hex() + " in the model's words " + os.urandom(8).hex()
    done = await do.using(occurrence=words)({"name": name})  # WRONG: occurrence=
    break_down()
    return done


# --- suspensions that are swallowed ---


@app.effect(intent=("name",))
async def shout(submission: semel.Submission, name: str) -> None:
    """Opaque: lost, it waits for a person."""
    await asyncio.to_thread(post, f"{PROVIDER}/opaque/shout", {"n": name}, timeout=submission.seconds_left)


@app.task(intent=("name",), retry=SOON)
async def gathers(name: str) -> str:
    """Exceptions as results."""
    await asyncio.gather(shout(name), return_exceptions=True)  # WRONG: gather(..., return_exceptions=True)
    return "done"


@app.task(intent=("name",), retry=SOON)
def suppresses(name: str) -> str:
    """Everything is suppressed."""
    with contextlib.suppress(BaseException):  # WRONG: suppress(BaseException)
        semel.sleep(timedelta(milliseconds=20))
    return "done"


def quietly() -> None:
    """Further down."""
    try:
        semel.sleep(timedelta(milliseconds=20))
    except:  # noqa: E722  # WRONG: except:
        pass


@app.task(intent=("name",), retry=SOON)
def hides(name: str) -> str:
    """Somebody else swallows it."""
    quietly()
    return "done"


@app.task(intent=("name",), retry=SOON)
async def sleeps(name: str) -> str:
    """Not even sleep."""
    try:
        semel.sleep(timedelta(milliseconds=20))
    except BaseException as error:  # WRONG: except BaseException
        return str(error)
    return "slept"


# --- lookups ---


def remembers(submission: semel.Submission) -> semel.Verdict:
    """Asks this process's memory, which is gone."""
    if submission.key in SENT:
        return semel.Confirmed("sent")
    return semel.NotFound()  # WRONG: not seen to open or ask anything; it had happened


@app.effect(intent=("name",), recovery=semel.Lookup(remembers, settle=timedelta(seconds=0.2)))
def send(submission: semel.Submission, name: str) -> str:
    """Marked, and remembered in a set."""
    post(f"{PROVIDER}/looked/send", {"marker": submission.key}, timeout=submission.seconds_left)
    SENT.add(submission.key)
    return "sent"


def elsewhere(submission: semel.Submission) -> semel.Verdict:
    """Looks for another mark."""
    found = get(f"{PROVIDER}/looked/ship?marker={submission.task_id}", timeout=submission.seconds_left)
    return semel.Confirmed("shipped") if found else semel.NotFound()  # WRONG: looked and said NotFound


@app.effect(intent=("name",), recovery=semel.Lookup(elsewhere, settle=timedelta(seconds=0.2)))
def ship(submission: semel.Submission, name: str) -> str:
    """Marked with the key."""
    post(f"{PROVIDER}/looked/ship", {"marker": submission.key}, timeout=submission.seconds_left)
    return "shipped"


@app.task(intent=("name",), retry=SOON)
def sends(name: str) -> str:
    """One."""
    return send(name)


@app.task(intent=("name",), retry=SOON)
def ships(name: str) -> str:
    """The other."""
    return ship(name)


# --- effects that retry ---


@app.effect(intent=("name",), recovery=HOUR)
async def insist(submission: semel.Submission, name: str) -> str:
    """Again and again, over httpx."""
    async with httpx.AsyncClient() as once:
        for _ in range(3):
            try:
                headers = {"Idempotency-Key": submission.key}
                answer = await once.post(f"{PROVIDER}/keyed/insist", headers=headers, json={})  # WRONG: sent POST /keyed/…
                return str(answer.json()["id"])
            except httpx.TransportError:
                await asyncio.sleep(0.01)
    raise TimeoutError


@app.task(intent=("name",), retry=SOON)
async def insists(name: str) -> str:
    """One."""
    return await insist(name)


def stubborn(fn: Callable[..., str]) -> Callable[..., str]:
    """As the decorators of retry libraries do."""

    @functools.wraps(fn)
    def tries(*args: Any, **kwargs: Any) -> str:
        while True:
            try:
                return fn(*args, **kwargs)  # WRONG: sent POST /keyed/… in the same submission
            except OSError:
                time.sleep(0.01)

    return tries


@app.effect(intent=("name",), recovery=HOUR)
@stubborn
def nag(submission: semel.Submission, name: str) -> str:
    """Retried from outside."""
    return str(post(f"{PROVIDER}/keyed/nag", {}, key=submission.key)["id"])


@app.task(intent=("name",), retry=SOON)
def nags(name: str) -> str:
    """One."""
    return nag(name)
