"""Roles that processes play on one file. `roles.py ROLE N ARGS...`: N forked processes start at once; a list of their answers.

The process that forks has no store open, unless forking is what the role is about.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

import apsw

from semel.errors import Misuse, StoreUnavailable
from semel.machine import journal as j
from semel.store import forks
from semel.store.contract import Landed, Stale
from semel.store.sqlite import SQLite
from semel.store.writer import Writer
from semel.testing.conformance_claims import until_none
from semel.testing.conformance_kit import TENANT, Stream, Writers, change_id, claimed, claiming, commit, one, session, task

FORK = multiprocessing.get_context("fork")


def open_at_once(start: Barrier, index: int, folder: str, rounds: str) -> Any:
    """Open each of these stores at the same moment as the others."""
    found = []
    for n in range(int(rounds)):
        start.wait(60)
        store = SQLite(f"{folder}/{n}.db")
        found.append([store.info.id, store.info.application, store.info.epoch])
        store.close()
    return found


def race(start: Barrier, index: int, path: str, wanted: str) -> Any:
    """Append to the one stream, deciding again whenever a rival was faster, until so many of ours have landed."""
    store = SQLite(path)
    start.wait(60)
    landed = stale = 0
    while landed < int(wanted):
        change, _ = Stream("s", head=store.head(TENANT, "s")).then(j.Void(), j.Void())
        outcome = one(store, change)
        landed += outcome == Landed()
        stale += outcome == Stale("s")
    store.close()
    return [landed, stale]


def claim_all(start: Barrier, index: int, path: str, threads: str) -> Any:
    """Claim until nothing is left, on several threads; the keys, and the name of the session."""
    store = SQLite(path)
    writers, guard, got = Writers(store), session(store), list[str]()
    start.wait(60)
    crew = [threading.Thread(target=lambda: got.extend(until_none(writers, store, guard, 4))) for _ in range(int(threads))]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    held = len(store.held(guard.session))
    writers.close()
    store.close()
    return [got, held]


def hammer(start: Barrier, index: int, path: str, seconds: str) -> Any:
    """Commit without a pause, and beat meanwhile: [commits, beats, refused or unanswered beats, the longest beat in seconds]."""
    store = SQLite(path)
    guard, stream = session(store), Stream(f"s{index}")
    beats, missed, longest = 0, 0, 0.0
    start.wait(60)
    end = time.monotonic() + float(seconds)

    def beat() -> None:
        nonlocal beats, missed, longest
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                missed += not store.beat(guard.session, [f"n{beats}"], f"n{beats + 1}", beats + 1)
                beats += 1
            except StoreUnavailable:
                missed += 1
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.02)

    beating = threading.Thread(target=beat)
    beating.start()
    commits = 0
    while time.monotonic() < end:
        change, after = stream.then(guard=guard)
        assert commit(store, change) == [Landed()]
        commits, stream = commits + 1, after
    beating.join()
    store.close()
    return [commits, beats, missed, longest]


# --- killed -----------------------------------------------------------------------------------------------------------


def _commit_for_ever(path: str, round_: int, out: int) -> None:
    """On three threads through one writer; each acknowledged (stream, seq) is told as soon as it is known."""
    store = SQLite(path)
    writer = Writer(store)

    def work(name: str) -> None:
        stream = Stream(name)
        while True:
            change, stream = stream.then(j.Void(), j.Void())
            ticket = writer.submit(change)
            ticket.wait()
            assert ticket.value == Landed(), ticket.value
            os.write(out, f"{name} {stream.head.seq}\n".encode())

    for n in range(3):
        threading.Thread(target=work, args=(f"r{round_}-{n}",)).start()


def killed(start: Barrier, index: int, path: str, rounds: str, seed: str) -> Any:
    """Have a process that commits killed at a random moment, again and again: [acknowledged, lost, what integrity_check says]."""
    chance, acknowledged, lost = random.Random(int(seed)), 0, []
    said = set()
    for round_ in range(int(rounds)):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _commit_for_ever(path, round_, write)
            threading.Event().wait()
        os.close(write)
        told = os.read(read, 1 << 16)  # it is at work
        time.sleep(chance.uniform(0.0, 0.05))
        os.kill(pid, signal.SIGKILL)
        while more := os.read(read, 1 << 16):
            told += more
        os.close(read)
        os.waitpid(pid, 0)
        lines = [line.split() for line in told.decode().splitlines()]
        last = {name: int(seq) for name, seq in lines}
        acknowledged += len(lines)
        store = SQLite(path)
        for name, seq in last.items():
            rows = store.rows(TENANT, name)
            if len(rows) < seq or len(rows) % 2 or j.broken(rows):
                lost.append([name, seq, len(rows), j.broken(rows)])
        store.close()
        raw = apsw.Connection(path)
        said.add(str(raw.execute("PRAGMA integrity_check").fetchall()[0][0]))
        raw.close()
    return [acknowledged, lost, sorted(said)]


# --- places -----------------------------------------------------------------------------------------------------------


def without_rights(start: Barrier, index: int, *paths: str) -> Any:
    """Open each of these as a user without the rights of root; what it said."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    said = []
    for path in paths:
        try:
            SQLite(path).close()
            said.append("opened")
        except Misuse as error:
            said.append(str(error))
    return said


# --- forks ------------------------------------------------------------------------------------------------------------


def _count(path: str) -> int:
    """What a process that inherited nothing comes, counts, and goes with: the last to close a database deletes its log."""
    code = "import apsw, sys; print(apsw.Connection(sys.argv[1]).execute('SELECT count(*) FROM journal').fetchall()[0][0])"
    return int(subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True, timeout=60).stdout)


def orphaned_by_fork(start: Barrier, index: int, path: str) -> Any:
    """The parent's store is open at the fork, and then the parent lets go: [acknowledged to the child, found]."""
    parents = SQLite(path)
    assert one(parents, Stream("parent").then()[0]) == Landed()
    told_read, told = os.pipe()
    go_read, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go_read, 1)
        store = SQLite(path)
        stream, landed = Stream("child"), 0
        for _ in range(5):
            change, stream = stream.then()
            landed += one(store, change) == Landed()
            _count(path)
        store.close()
        os.write(told, str(landed).encode())
        os._exit(0)
    parents.close()
    os.write(go, b"x")
    landed = int(os.read(told_read, 100))
    os.waitpid(pid, 0)
    return [landed + 1, _count(path)]


def forks_amid_commits(start: Barrier, index: int, path: str, children: str) -> Any:
    """A parent forks while its writer commits; each child commits by a store of its own: [acknowledged, found, exit codes]."""
    store = SQLite(path)
    writer, stop, landed = Writer(store), threading.Event(), [0, 0]

    def work(n: int) -> None:
        stream = Stream(f"parent-{n}")
        while not stop.is_set():
            change, stream = stream.then()
            ticket = writer.submit(change)
            ticket.wait()
            landed[n] += ticket.value == Landed()

    crew = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in crew:
        thread.start()
    codes = []
    for n in range(int(children)):
        pid = os.fork()
        if pid == 0:
            mine = SQLite(path)
            ok = one(mine, Stream(f"child-{n}").then()[0]) == Landed()
            mine.close()
            os._exit(0 if ok else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for thread in crew:
        thread.join()
    writer.close()
    store.close()
    return [sum(landed) + len(codes), _count(path), sorted(set(codes))]


def used_after_a_fork(start: Barrier, index: int, path: str) -> Any:
    """What the child gets of the parent's handle, and the parent afterwards."""
    store = SQLite(path)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store.head(TENANT, "s")
            os.write(write, b"it answered")
        except StoreUnavailable:
            os.write(write, b"StoreUnavailable")
        os._exit(0)
    os.waitpid(pid, 0)
    said = os.read(read, 100).decode()
    landed = one(store, Stream("s").then()[0]) == Landed()
    store.close()
    return [said, landed]


def forked_in_a_write(start: Barrier, index: int, path: str) -> Any:
    """A fork that found no quiet moment: the child may not open the file, since its book of locks is not true."""
    forks.PATIENCE_SECONDS = 0.05
    store = SQLite(path)
    inside, leave = threading.Event(), threading.Event()

    def decide(tenant: str, rows: object) -> None:
        inside.set()
        leave.wait(60)

    assert one(store, task("k")[0]) == Landed()
    unit = claiming(session(store))
    object.__setattr__(unit, "decide", decide)
    writing = threading.Thread(target=lambda: store.commit([unit]))
    writing.start()
    inside.wait(60)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            SQLite(path)
            os.write(write, b"opened")
        except StoreUnavailable as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    leave.set()
    writing.join()
    found = claimed(one(store, claiming(session(store))))
    store.close()
    return [os.read(read, 1000).decode(), found]


# --- the stage --------------------------------------------------------------------------------------------------------


def _perform(role: Callable[..., Any], start: Barrier, index: int, args: list[str], answer: Any) -> None:
    try:
        answer.put((index, role(start, index, *args)))
    except BaseException as error:
        start.abort()
        answer.put((-1, f"process {index}: {type(error).__name__}: {error}"))
        raise


def main() -> None:
    role, count = globals()[sys.argv[1]], int(sys.argv[2])
    start, answer = FORK.Barrier(count), FORK.Queue()
    crew = [FORK.Process(target=_perform, args=(role, start, n, sys.argv[3:], answer)) for n in range(count)]
    for process in crew:
        process.start()
    found = dict(answer.get(timeout=80) for _ in crew)
    for process in crew:
        process.join(20)
    assert -1 not in found, found
    print(json.dumps([found[n] for n in sorted(found)]))


if __name__ == "__main__":
    assert change_id()
    main()
