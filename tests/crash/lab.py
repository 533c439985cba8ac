"""The crash tests' laboratory: a real provider, real worker processes, real signals, and the provider's own record.

A test starts workers, stops them at a gate (`apps/wire.py`) or at the provider, kills or freezes them, lets others go
on, and then counts what really happened at the provider. Every wait has a deadline; every process ends with the lab.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw
import nursery

import semel
from semel.engine.queue import Order
from semel.machine import journal, projection, tasks
from semel.testing.crashtest.stores import Files
from semel.testing.provider import Act, Provider

T = TypeVar("T")
APPS = Path(__file__).parent / "apps"
SOURCE = Path(semel.__file__).parents[1]  # the one under test, which may be a sabotaged copy
PATIENCE = float(os.environ.get("LAB_PATIENCE", "40"))  # seconds; far more than anything takes: the machine may be busy
ENDED = (semel.Delivery.ACKNOWLEDGED, semel.Delivery.DEAD_LETTERED)

ROUNDS = int(os.environ.get("SEMEL_PROOF_ROUNDS", "1"))


class Stuck(AssertionError):
    """Something did not happen within its deadline."""


def until(what: str, condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Poll until `condition()` is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise Stuck(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)
    return found


class Worker:
    """A worker process."""

    def __init__(
        self, process: subprocess.Popen[bytes] | nursery.Child, log: Path, free: Callable[[], bool] = lambda: True
    ) -> None:
        self.process, self.log = process, log
        self._free = free  # whether the store can be written
        self.pid = process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it, if the process has not been waited for."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel has stopped every thread of it: not in the middle of a commit, on SQLite, which
        would keep everybody else from the store."""
        until(f"{self.pid} is stopped, and holds no lock", self._stopped)

    def _stopped(self) -> bool:
        self.signal(signal.SIGSTOP)
        until(f"{self.pid} is stopped", lambda: set(self.states()) <= {"T", "t"}, 10)
        if free := self._free():
            return free
        self.wake()
        return False

    def wake(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def exit_code(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; minus the number of the signal that killed it."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Stuck(f"worker {self.pid} does not end") from None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def says(self, words: str) -> None:
        """Wait until its log holds these words."""
        until(f"worker {self.pid} says {words!r}", lambda: words in self.log.read_text())

    def states(self) -> list[str]:
        """What each of its threads is at, as the kernel's letter."""
        found = []
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            text = stat.read_text()
            found.append(text[text.rindex(")") + 2])
        return found


class Lab:
    """One test's world. url: of its store; default: a file of its own. env: of all its workers, on top of the lab's own."""

    apps = APPS

    def __init__(self, root: Path, url: str = "", **env: str) -> None:
        self.root, self.room = root, root / "room"
        self.room.mkdir(parents=True)
        self.store = root / "agent.db"
        self.url = url or f"sqlite:///{self.store}"
        self.record = root / "provider.db"
        self.provider = Provider.start(self.record)
        self.env = {
            **os.environ,
            "SEMEL_STORE": self.url,
            "CRASH_PROVIDER": self.provider.url,
            "CRASH_ROOM": str(self.room),
            "CRASH_PARENT": str(os.getpid()),
            "PYTHONPATH": os.pathsep.join([str(SOURCE), str(APPS)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }
        self.workers: list[Worker] = []
        self._others: list[subprocess.Popen[Any]] = []
        self.app = self.open_app()

    def open_app(self) -> semel.App:
        """The test's own hold on the store: it enqueues, reads and decides as a person would, and runs nothing."""
        return semel.App(self.url)

    def close(self) -> None:
        """End everything that this lab started."""
        for process in [*(w.process for w in self.workers), *self._others]:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
        self.app.close()
        self.provider.close()

    # --- processes ---

    def worker(self, module: str = "agent", *, concurrency: int = 20, script: str = "run_worker.py", **env: str) -> Worker:
        """Start a worker process on an app module under apps/."""
        argv = (str(APPS / script), module, str(concurrency))
        if ROUNDS > 1:
            return self.launch(sys.executable, *argv, **env)
        log = self.new_log()
        self.workers.append(Worker(nursery.of_this_process(str(SOURCE)).fork(argv, {**self.env, **env}, log), log, self.free))
        return self.workers[-1]

    def free(self) -> bool:
        """Whether the store can be written now."""
        return not self.url.startswith("sqlite:") or Files().free(self.url)

    def new_log(self) -> Path:
        return self.root / f"worker{len(self.workers) + 1}.log"

    def launch(self, *command: str, **env: str) -> Worker:
        """Start a worker by another command."""
        log = self.new_log()
        with log.open("wb") as out:
            process = subprocess.Popen(command, env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.workers.append(Worker(process, log, self.free))
        return self.workers[-1]

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Any other process, ended with the lab."""
        process = subprocess.Popen(
            [sys.executable, *command], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._others.append(process)
        return process

    def sessions(self) -> list[int]:
        """The pids of the sessions that live, oldest first."""
        rows = self.app.runtime.desk.store.sessions()
        return [row.pid for row in sorted(rows, key=lambda row: row.started)]

    def kill_pid(self, pid: int) -> None:
        """SIGKILL a worker that its supervisor started."""
        assert pid in self.sessions()
        os.kill(pid, signal.SIGKILL)

    def restart_provider(self) -> None:
        """A dead provider comes back: same record, same port."""
        port = int(self.provider.url.rsplit(":", 1)[1])
        self.provider = Provider.start(self.record, port=port)

    # --- the store ---

    def lock_store(self, seconds: float) -> subprocess.Popen[str]:
        """Another process lets nobody write for so long; returns once it does."""
        process = self.start(str(APPS / "run_locker.py"), self.url, str(seconds))
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        return process

    def copy_store(self, name: str) -> None:
        """A consistent copy, as a backup would make it."""
        source, target = apsw.Connection(str(self.store)), apsw.Connection(str(self.root / name))
        try:
            with target.backup("main", source, "main") as backup:
                backup.step()
        finally:
            target.close()
            source.close()

    def put_store(self, name: str) -> None:
        """A restore, as people do it: the copy is put in the store's place, and its old log is deleted."""
        self.app.close()
        (self.root / name).rename(self.store)
        for suffix in ("-wal", "-shm"):
            Path(f"{self.store}{suffix}").unlink()
        self.app = self.open_app()

    # --- gates ---

    def arm(self, *names: str) -> None:
        """The first process that comes to each gate waits there."""
        for name in names:
            (self.room / f"{name}.armed").touch()

    def arrived(self, name: str) -> int:
        """Wait until a process is at the gate; its pid."""
        found = until(f"somebody is at the gate {name}", lambda: list(self.room.glob(f"{name}.at.*")))
        return int(found[0].name.rsplit(".", 1)[1])

    def open(self, name: str) -> None:
        """Let them pass."""
        (self.room / f"{name}.open").touch()

    def diary(self) -> list[tuple[int, str]]:
        """What the agents noted: (pid, line), in order."""
        path = self.room / "diary"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines]

    def running_beside(self, line: str) -> set[str]:
        """Which starts that the diary tells of, by the same process, had no end when it noted `line`."""
        open_now: dict[int, set[str]] = {}
        for pid, noted in self.diary():
            if noted == line:
                return open_now.get(pid, set())
            verb, _, what = noted.partition(" ")
            if verb == "start":
                open_now.setdefault(pid, set()).add(what)
            elif verb == "end":
                open_now[pid].discard(what)
        raise AssertionError(f"nobody noted {line!r}")

    # --- tasks ---

    def enqueue(self, kind: str, key: str, **arguments: Any) -> semel.Ref[Any]:
        """Accept a task of a kind that the workers know."""
        return self.app.accept(Order("default", kind, key, arguments, "default"))

    def task(self, ref: semel.Ref[Any]) -> semel.TaskView:
        return self.app.tasks.get(ref)

    def wait(self, ref: semel.Ref[Any], *deliveries: semel.Delivery, seconds: float = PATIENCE) -> semel.TaskView:
        """Wait until the task is in one of these states of delivery; default: ended, or blocked on a person."""
        wanted = deliveries or (*ENDED, semel.Delivery.BLOCKED)
        until(f"task {ref.id} is {' or '.join(wanted)}", lambda: self.task(ref).delivery in wanted, seconds)
        return self.task(ref)

    def result(self, ref: semel.Ref[Any]) -> Any:
        """The result of a task that has succeeded."""
        state = self.wait(ref, *ENDED)
        assert (state.delivery, state.execution) == (semel.Delivery.ACKNOWLEDGED, semel.Execution.SUCCEEDED), state
        return ref.result(timedelta(seconds=PATIENCE))

    def unknown(self, ref: semel.Ref[Any]) -> semel.EffectView:
        """The one effect of the task whose outcome is unknown."""
        (found,) = self.app.effects.list(state="ambiguous", task=ref)
        return found

    def person(self, ref: semel.Ref[Any], action: str = "", *, stopped: bool = False) -> str:
        """Wait until the task waits for a person, who looks into the provider's books and says what is there.

        Whoever found nothing before settle was over is asked again, and looks again (R4).
        """
        self.wait(ref, semel.Delivery.BLOCKED)
        before = self._not_found(self.unknown(ref).key)
        while True:
            self.wait(ref, semel.Delivery.BLOCKED)
            effect, asked = self.unknown(ref), len(self.events(ref, "blocked"))
            acts = self.acts(action or effect.name.removeprefix("a"))
            verdict: semel.Verdict = semel.Confirmed(acts[0].id) if acts else semel.NotFound()
            try:
                self.app.review.resolve(effect.key, verdict, by="alice", seen=effect.version, process_stopped=stopped)
            except semel.Refused as error:
                if error.code != "stale_view":
                    raise
                continue  # settle was put on record meanwhile
            if acts:
                return "confirmed"
            while self._not_found(effect.key) == before and len(self.events(ref, "blocked")) == asked:
                time.sleep(0.01)
            if self._not_found(effect.key) > before:  # they are believed, or by now a lookup is
                return "not_found"

    def _not_found(self, key: str) -> int:
        return sum(event.body["verdict"] == "not_found" for event in self.events(key, "found"))

    def a_person_passes(self) -> None:
        """Whoever waits for a person now gets the truth, as the provider's books tell it of this key."""
        for task in self.app.tasks.list(delivery=semel.Delivery.BLOCKED, limit=1000):
            self.person_tells(task.ref)

    def person_tells(self, ref: semel.Ref[Any]) -> int:
        """The same for one task. How many verdicts were taken."""
        told = 0
        for effect in self.app.effects.list(state="ambiguous", task=ref):
            acts = self.provider.acts(key=effect.key)
            verdict: semel.Verdict = semel.Confirmed(acts[0].id) if acts else semel.NotFound()
            try:
                self.app.review.resolve(effect.key, verdict, by="alice", seen=effect.version)
                told += 1
            except semel.Refused:
                pass  # it has moved on: alice looks again later
        return told

    def settle(self, ref: semel.Ref[Any]) -> Any:
        """The task's result; if its provider can tell nothing, a person does first."""
        if self.wait(ref).delivery is semel.Delivery.BLOCKED:
            self.person(ref)
        return self.result(ref)

    def events(self, ref: semel.Ref[Any] | str, kind: str = "") -> list[semel.Event]:
        """The journal of a task, or an effect."""
        return [event for event in self.app.journal(ref) if kind in ("", event.kind)]

    # --- what must hold in the end ---

    def acts(self, action: str | None = None) -> list[Act]:
        """What the provider really did, by its own record."""
        return self.provider.acts(action)

    def requests_of(self, pid: int) -> int:
        """How many changing requests a process sent."""
        return sum(1 for request in self.provider.requests() if request.pid == pid and request.method != "GET")

    def proved(self, *refs: semel.Ref[Any], acts: dict[str, int], open_tasks: int = 0) -> None:
        """The acts are these and no others; chains are whole, the tables agree with them, and nothing is stranded."""
        found = {action: len(self.acts(action)) for action in {*acts, *(a.action for a in self.acts())}}
        assert found == acts, f"the provider did {found}, and should have done {acts}"
        self.whole()
        sizes = self.app.runtime.desk.store.sizes()
        stranded = {name: sizes[name] for name in ("ready", "inflight", "unknown")}
        assert sum(stranded.values()) == open_tasks, f"stranded: {stranded}"
        for ref in refs:
            assert self.task(ref).delivery in ENDED, self.task(ref)

    def whole(self) -> None:
        """Every chain of the journal is unbroken, and every table says what the journal says."""
        store = self.app.runtime.desk.store
        after = ("", "")
        while page := store.streams(after, 100):
            for tenant, stream in page:
                for _ in range(20):  # a zombie that woke may write between the two reads
                    rows = store.rows(tenant, stream)
                    assert journal.broken(rows) is None, (stream, journal.broken(rows))
                    if rows[0].kind == journal.Enqueued.kind:
                        task = self.one_unknown_at_a_time(rows)
                        tables = projection.of_task(tenant, None, task, list(task.effects))
                    else:
                        tables = projection.of_key(tenant, stream, tasks.Key(), tasks.fold_key(rows))
                    wrong = store.holds(tables)
                    if not wrong or store.head(tenant, stream).seq == rows[-1].seq:
                        break
                assert wrong == []
            after = page[-1]

    def one_unknown_at_a_time(self, rows: list[journal.Row]) -> tasks.Task:
        """The invariant, at every row: while an effect of a task is unknown, the task intends no other. The last state."""
        task = tasks.Task()
        for row in rows:
            event = journal.event_of(row)
            if isinstance(event, journal.Intended):
                assert task.unknown <= {event.key}, f"row {row.seq} intends {event.key} while {task.unknown} is unknown"
            task = tasks.apply(task, event, row.at)
        return task

    # --- telling ---

    def story(self) -> str:
        """For whoever reads a failure: every stream, what the provider did, and what the workers said."""
        lines = [f"acts: {[(a.action, a.pid, a.seq) for a in self.acts()]}", f"diary: {self.diary()}"]
        lines += [f"request: {dataclasses.asdict(request)}" for request in self.provider.requests()]
        store = self.app.runtime.desk.store
        for tenant, stream in store.streams(("", ""), 20):
            lines.append(f"--- stream {stream}")
            lines += [
                f"{r.at} {r.seq} {r.kind} {r.actor} {r.token & 0xFFFFFFFF} {r.body[:300]}" for r in store.rows(tenant, stream)
            ]
        for worker in self.workers:
            if worker.alive:
                worker.signal(signal.SIGUSR1)
                time.sleep(0.3)  # for it to write down where it is
            lines += [f"--- worker {worker.pid}, exit {worker.process.poll()}", worker.log.read_text()[-4000:]]
        return "\n".join(lines)


def as_json(value: object) -> str:
    return json.dumps(value)
