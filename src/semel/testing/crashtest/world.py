"""The world of one run: a store of its own, worker processes that are stopped for real, and a person who tells the truth."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import semel
from semel.app import App
from semel.engine.queue import Order
from semel.errors import Refused, SemelError, StoreUnavailable
from semel.machine import journal, tasks
from semel.machine.projection import TaskRow
from semel.model import Confirmed, Delivery, EffectState, EffectView, Execution, NotFound, Ref, Verdict
from semel.testing.crashtest.proxy import Proxy
from semel.testing.crashtest.room import PAUSE_SECONDS, Room, Setting
from semel.testing.provider import Provider

if TYPE_CHECKING:
    from semel.testing.crashtest.probes import Calls, Probe, Sandbox
    from semel.testing.crashtest.stores import Stores

T = TypeVar("T")
ENDED = (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED)
PERSON = "crashtest"
FREEZE_SECONDS = 10.0
MOST_FREEZES = 100  # until one is stopped outside of its commits
MOST_WORKERS = 12  # in one run: whose workers die by themselves again and again is stuck


class Stuck(Exception):
    """Something did not happen within its time."""


class Interrupted(Exception):
    """Whoever started the crash test does not want it any more."""


@dataclass
class Kit:
    """What all runs share. patience: seconds for one wait. results: what each gate's effect returned in the dry run."""

    target: str
    app: App
    order: Order
    counts: Calls | Probe | Sandbox
    lease: float = 2.0
    settle: float | None = None
    sandbox: str = ""
    patience: float = 60.0
    env: dict[str, str] = field(default_factory=dict)
    results: dict[tuple[str, int], Any] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    children: set[Child] = field(default_factory=set)

    def end(self) -> None:
        """Every process of every run, at once."""
        self.stop.set()
        for child in list(self.children):
            child.kill()


class Child:
    """A worker process, which leads its group."""

    def __init__(self, setting: Setting, env: Mapping[str, str], output: Path) -> None:
        command = [sys.executable, "-m", "semel.testing.crashtest.inside"]
        self.output = output
        with output.open("wb") as out:
            self.process = subprocess.Popen(
                command, env=dict(env), stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as told:  # everybody can read a command line
            told.write(setting.text().encode())
        self.pid = self.process.pid
        self.frozen = False
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether it runs, or is stopped. One that has ended is not waited for: its pid, and its group's, stay its own."""
        with self._lock:
            if self.process.returncode is not None:
                return False
            if hasattr(os, "waitid"):
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            if self.process.poll() is None:  # macOS, before Python 3.13
                return True
            self._kill_group()  # while its name is not given anew, as long as anybody is in it
            return False

    def kill(self) -> None:
        """SIGKILL; what it has started ends with it, as its supervisor would see to. The second time nothing happens."""
        with self._lock:
            if self.process.returncode is None:
                self._kill_group()
                self.process.wait()
        self.frozen = False

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP, and wait until every thread stands still (or the kernel timer has ended it)."""
        self._signal(signal.SIGSTOP)
        self.frozen = True
        end = time.monotonic() + FREEZE_SECONDS
        while self.alive and not self._stopped() and time.monotonic() < end:
            time.sleep(PAUSE_SECONDS)

    def wake(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.frozen = False

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self.process.returncode is None:
                os.kill(self.pid, number)

    def _stopped(self) -> bool:
        states = []
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                text = stat.read_text()
                states.append(text[text.rindex(")") + 2])
        return set(states) <= {"T", "t"}

    def said(self) -> str:
        """The end of what it wrote."""
        return self.output.read_text(errors="replace")[-2000:].strip()


class World:
    """One run, on a new store. during: see `Setting`."""

    def __init__(self, kit: Kit, folder: Path, stores: Stores, *, during: float = 0.0) -> None:
        self.kit, self.folder, self.stores, self.during = kit, folder, stores, during
        self.losing = ""  # the effect whose first reply is lost, in the workers that are started from now on
        self.lost = True  # False: a reply was to be lost, and none was
        self.forgotten: list[EffectView] = []  # what was on record when the store was put back
        self.url = stores.new(folder)
        self.proxy: Proxy | None = None
        (folder / "room").mkdir(parents=True)
        self.room = Room(folder / "room")
        self.workers: list[Child] = []
        self.told: list[str] = []  # what the person said, in order
        self.duplicates = ""  # what came of a duplicate delivery that was no duplicate
        self.provider: Provider | None = None
        self.app = self._open()
        self.app.runtime.desk.store.permit_ttl(int(kit.lease * 1000))
        self.app.runtime.witness.known(self.app.runtime.desk.store.info)
        if kit.sandbox:
            self.provider = Provider.start(folder / "provider.db")
        kit.counts.begin(self)

    def _open(self) -> App:
        return semel.App(self.url, tenant=None)

    @contextlib.contextmanager
    def reopened(self) -> Iterator[None]:
        """Let go of the store while something is done to its file."""
        self.app.close()
        yield
        self.app = self._open()

    def close(self) -> None:
        """End all that it started."""
        for child in self.workers:
            child.kill()
            self.kit.children.discard(child)
        with contextlib.suppress(SemelError):
            self.app.close()
        if self.provider is not None:
            self.provider.close()
        if self.proxy is not None:
            self.proxy.close()
        self.stores.drop(self.url)

    def behind_proxy(self) -> Proxy:
        """Workers reach the store through this from now on."""
        self.proxy = Proxy(self.url)
        return self.proxy

    def freeze(self, child: Child) -> None:
        """Stop it where it holds no lock of the store: on SQLite everybody else would wait until it is woken. Raises `Stuck`."""
        for _ in range(MOST_FREEZES):
            child.freeze()
            if self.stores.free(self.url):
                return
            child.wake()
            time.sleep(PAUSE_SECONDS)
        raise Stuck("a worker was in the middle of a commit, however often it was stopped")

    # --- waiting ---

    def until(self, what: str, condition: Callable[[], T], seconds: float | None = None) -> T:
        """Poll until it is true. Raises `Stuck`, `Interrupted`."""
        seconds = self.kit.patience if seconds is None else seconds
        end = time.monotonic() + seconds
        while not (found := self._asked(condition)):
            if self.kit.stop.is_set():
                raise Interrupted
            if time.monotonic() > end:
                raise Stuck(f"not within {seconds:g} s: {what}")
            time.sleep(0.01)
        return found

    def _asked(self, condition: Callable[[], T]) -> T | None:
        try:
            return condition()
        except StoreUnavailable:  # it is what is being harmed
            return None

    def arrived(self, gate: str) -> Child:
        """Wait until a worker stands at the gate."""

        def look() -> Child | None:
            pid = self.room.at(gate)
            if pid is None and not any(child.alive for child in self.workers):
                raise Stuck(f"the worker ended before it came to {gate}: {self.last_words()}")
            if pid is None:
                self.approve()
            return next((child for child in self.workers if child.pid == pid), None)

        child = self.until(f"a worker comes to {gate}", look)
        assert child is not None
        return child

    def last_words(self) -> str:
        """What the worker that was started last has written."""
        lines = self.workers[-1].said().splitlines() if self.workers else []
        return lines[-1] if lines else "it said nothing"

    def raised(self) -> str:
        """The last exception of which a worker wrote a traceback; "": none."""
        found = ""
        for child in self.workers:
            inside = False
            for line in child.output.read_text(errors="replace").splitlines():
                if inside and line and not line.startswith(" "):
                    found, inside = line, False
                elif line.startswith("Traceback (most recent call last)"):
                    inside = True
        return found

    # --- processes ---

    def start(self) -> Child:
        """One more worker."""
        if self.kit.stop.is_set():
            raise Interrupted
        number = len(self.workers) + 1
        url = self.url if self.proxy is None else self.proxy.url
        setting = Setting(
            self.kit.target, url, str(self.room.path), os.getpid(), str(self.folder / f"watch{number}.jsonl"),
            self.kit.lease, self.during, self.kit.settle, lose=self.losing,
        )  # fmt: skip
        env = {**os.environ, **self.kit.env, "SEMEL_STORE": url, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        if self.provider is not None:
            env[self.kit.sandbox] = self.provider.url
        child = Child(setting, env, self.folder / f"worker{number}.log")
        self.workers.append(child)
        self.kit.children.add(child)
        return child

    # --- the task ---

    def enqueue(self) -> Ref[Any]:
        """Accept the task."""
        return self.app.accept(self.kit.order)

    def tasks(self) -> list[TaskRow]:
        """All of this store: the task, and whatever it has enqueued."""
        return self.app.runtime.desk.store.tasks(None, limit=1000)

    def effects(self) -> list[EffectView]:
        """All of this store, by key."""
        found: list[EffectView] = []
        while page := self.app.effects.list(after=found[-1].key if found else "", limit=100):
            found += page
        return found

    def finish(self, *, patient: bool = True) -> None:
        """Let workers go on until every task has ended; where a person must decide, one does. Raises `Stuck`.

        patient: go on after an attempt that failed, or a worker that ended by itself.
        """

        def over() -> bool:
            rows = self.tasks()
            left = [row for row in rows if row.delivery not in ENDED]
            for row in rows if not patient else ():
                if row.execution in (Execution.FAILED, Execution.CANCELLED):
                    raise Stuck(f"task {row.kind} failed: {self.why()}")
            for row in left:
                if row.delivery == Delivery.BLOCKED:
                    self.decide(row)
            if left and not any(child.alive and not child.frozen for child in self.workers):
                if len(self.workers) >= (MOST_WORKERS if patient else 1):
                    raise Stuck(f"its worker ended, and said: {self.last_words()}")
                self.start()
            return not left

        try:
            self.until("the task ends", over)
        except Stuck as stuck:
            states = [f"{row.kind} is {row.delivery}, {row.execution}" for row in self.tasks() if row.delivery not in ENDED]
            raise Stuck(f"{stuck} ({'; '.join(states)})" if states and patient else str(stuck)) from None

    # --- the person ---

    def decide(self, row: TaskRow) -> None:
        """Play the person for whom a task waits: truthfully, as the resource is counted. Raises `Stuck` if nothing helps."""
        task: Ref[Any] = Ref(row.task, row.tenant)
        unknown = list(self.app.effects.list(state=EffectState.AMBIGUOUS, task=task, tenant=row.tenant))
        asking = [e for e in self.app.review.pending(tenant=row.tenant) if e.task_id == row.task]
        if not unknown and not asking:
            now = self.app.tasks.get(task)
            if now.delivery is Delivery.BLOCKED:
                raise Stuck(f"the task is blocked: {now.why}")
            return
        self.approve()
        for effect in unknown:
            self._tell(effect)

    def approve(self) -> None:
        """Approve what waits for people, as many as it takes."""
        for tenant in {row.tenant for row in self.tasks() if row.delivery == Delivery.BLOCKED}:
            for effect in self.app.review.pending(tenant=tenant):
                for n in range(self.kit.app.approvers.get(effect.name, 1)):
                    with contextlib.suppress(Refused):
                        self.app.review.approve(effect.key, by=f"{PERSON} {n + 1}" if n else PERSON, tenant=tenant)

    def _tell(self, effect: EffectView) -> None:
        n = self.counted().get(effect.key)
        if n is None:  # who says not found of it without looking makes a duplicate
            raise Stuck(f"a person must say what became of {effect.name} ({effect.key}), and nobody counts it")
        there = n > 0
        result = self.kit.results.get((effect.name, self.number(effect)))
        verdict: Verdict = Confirmed(result) if there else NotFound()
        said = f"{effect.name}: {'confirmed' if there else 'not found'}"
        decide = self.app.review.resolve
        try:
            decide(effect.key, verdict, by=PERSON, seen=effect.version, tenant=effect.tenant)
        except Refused as error:
            if "stopped" not in str(error):
                return  # it has moved on
            for child in self.workers:  # nothing else can prove it: a person ends what could still send, then gives their word
                if child.frozen:
                    child.kill()
            with contextlib.suppress(Refused):
                decide(effect.key, verdict, by=PERSON, seen=effect.version, tenant=effect.tenant, process_stopped=True)
        if self.told[-1:] != [said]:  # they are asked again if settle was not over when they looked (R4)
            self.told.append(said)

    def number(self, effect: EffectView) -> int:
        """Which of its name it is, in the order of the journal."""
        same: dict[str, None] = {}
        for row in self.rows():
            event = journal.event_of(row)
            if isinstance(event, journal.Intended | journal.Assumed | journal.Asked) and event.name == effect.name:
                same[event.key] = None
        return list(same).index(effect.key) + 1 if effect.key in same else 1

    def counted(self) -> dict[str, int]:
        """Effects at the resource, by key: of all that were begun, whatever the record still knows of them."""
        return self.kit.counts.count(self, [*self.effects(), *self.gone()])

    def gone(self) -> list[EffectView]:
        """Those of which a restore of the store has left nothing on record, so that what became of them is unknown there."""
        known = {effect.key for effect in self.effects()} if self.forgotten else set()
        return [replace(effect, state=EffectState.AMBIGUOUS) for effect in self.forgotten if effect.key not in known]

    # --- the record ---

    def watched(self) -> list[dict[str, Any]]:
        """What the watch has seen in the workers, so far."""
        logs = [path for n in range(len(self.workers)) if (path := self.folder / f"watch{n + 1}.jsonl").exists()]
        whole = [line for path in logs for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        return [json.loads(line) for line in whole]

    def rows(self) -> list[journal.Row]:
        """The journal: every stream of a task or a key, oldest row first."""
        store = self.app.runtime.desk.store
        found: list[journal.Row] = []
        after = ("", "")
        while page := store.streams(after, 100):
            found += [row for tenant, stream in page if tenant for row in store.rows(tenant, stream)]
            after = page[-1]
        return sorted(found, key=lambda row: (row.at, row.stream, row.seq))

    def journal(self) -> list[dict[str, Any]]:
        """The same as data."""
        names = ("tenant", "stream", "seq", "kind", "actor", "token", "at")
        return [{**{name: getattr(row, name) for name in names}, "body": journal.told_by(row)} for row in self.rows()]

    def why(self) -> str:
        """The last reason that the journal gives for anything."""
        whys = [text for row in self.journal() for text in (row["body"].get("why"), row["body"].get("error")) if text]
        return str(whys[-1]) if whys else "its journal does not say why"

    def denied(self, key: str) -> str:
        """Who said of an effect that it was not there, in words; "": nobody."""
        events = [journal.event_of(row) for row in self.rows()]
        found = [e for e in events if isinstance(e, journal.Found) and e.key == key and e.verdict == "not_found"]
        return f"; {found[-1].how} had said that it was not there" if found else ""

    def broken(self) -> str:
        """What the record shows that must never be, in words: a broken chain, or an intent while another is unknown."""
        store = self.app.runtime.desk.store
        known = {effect.key for effect in [*self.effects(), *self.gone()]}
        if begun := {note["key"] for note in self.room.notes() if note.get("what") == "began"} - known:
            return f"an effect was called, and no record ever held it ({', '.join(sorted(begun))})"
        for row in self.tasks():
            rows = store.rows(row.tenant, row.task)
            if wrong := journal.broken(rows):
                return f"the journal's chain is broken: {wrong}"
            state = tasks.Task()
            for one in rows:
                event = journal.event_of(one)
                if isinstance(event, journal.Intended) and not state.unknown <= {event.key}:
                    return f"{event.name} was submitted while another effect was unknown (row {one.seq})"
                state = tasks.apply(state, event, one.at)
        return ""
