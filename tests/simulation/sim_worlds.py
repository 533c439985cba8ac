"""One seed's world: workers that run the shipped code over one SQLite store, and all that may befall them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import sim_agents
from sim_clockwork import SIM, Loop, Over, Proc, Sim, Threading, Time, sim
from sim_losses import Losses
from sim_outside import Outside

import semel
from semel import app as apps
from semel import worker as workers
from semel.engine import arrival, attempt, drive, ledger, queue, runtime, session, standing
from semel.engine.clock import Clock
from semel.engine.runtime import Runtime
from semel.errors import StoreUnavailable
from semel.store import passed, turns, witness, writer
from semel.store.around import asked_singly
from semel.store.contract import StoreInfo
from semel.store.sqlite import SQLite
from semel.store.witness import Witness
from semel.watchdog import Identity, Watchdog

TTL = 4.0
LARGEST_TTL_MS = 5000
HORIZON = 400.0  # by then everything has ended
EPOCH_MS = 1_700_000_000_000


class Machine(Proc):
    """A worker's process on one of the hosts."""

    def __init__(self, world: World, name: str, host: str, *, timer: bool) -> None:
        super().__init__(name)
        self.world, self.host, self.timer = world, host, timer
        self.pid = world.next_pid()
        self.app: semel.App | None = None
        self.worker: workers.Worker | None = None
        self.threads = drive.Threads("semel-call")
        self.deadline: float | None = None  # when the kernel kills it
        self.began, self.woke = world.sim.now, 0.0
        self.died: float | None = None

    @property
    def identity(self) -> Identity:
        return Identity("boot", 1, 1, self.pid, self.pid, self.host)


class SimClock(Clock):
    """The hosts' common wall clock, which jumps; and CLOCK_BOOTTIME, which never does."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def raw_ms(self) -> int:
        return EPOCH_MS + int((self._world.sim.now + self._world.offset) * 1000)

    def boot(self) -> float:
        return 1000.0 + self._world.sim.now


class SimWatchdog(Watchdog):
    """The real one's order and bookkeeping; the kernel behind it is the world's."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(False)
        self._machine = machine
        self.enabled = self.active = machine.timer
        self.available = True

    def _arm(self) -> None:
        self.armed = self._maybe_set = True
        self._machine.world.arm(self._machine, self.deadline - 1000.0)

    def _disarm(self) -> None:
        self.armed = self._maybe_set = False
        self._machine.deadline = None

    def check(self) -> bool:
        return 1000.0 + sim().now < self.deadline

    def fenced(self, margin: float = 0.0) -> bool:
        return 1000.0 + sim().now >= self.deadline - margin


class SimWitness(Witness):
    """Its file lies beside the store's, and is in memory."""

    def __init__(self, info: StoreInfo, missing: Any, machine: Machine) -> None:
        super().__init__(info, missing)
        self._files, self.path = machine.world.files, Path("agent.db.witness")

    def _text(self, path: Path) -> str | None:
        return self._files.get(path.name)

    def _put(self, path: Path, text: str, there: str | None) -> bool:
        if self._text(path) != there:
            return False
        self._files[path.name] = text
        return True


class SimStore:
    """One process's handle of the world's store: it may be away, slow, or answer to nobody any more."""

    def __init__(self, world: World, created: bool) -> None:
        self.world, self.created = world, created
        self.base = world.open_file() if world.folder else world.base
        self.file = world.file  # which incarnation of the file it has open
        self.info = self.base.reread()
        self._passed = passed.Passed(Time.monotonic)

    def _reach(self) -> None:
        """Some time may pass, in which much may happen; and then the store may be away."""
        here = self.world.sim
        if self.world.committing:  # what decides within a transaction reads what that holds
            return
        if here.lane is not None:
            if here.random.random() < self.world.slowness:
                here.block(here.random.choice((0.001, 0.01, 0.1, 0.3)))
            if here.over or here.lane.proc.dead:
                raise Over
        if here.now < self.world.away_until and here.lane is not self.world.people_lane:
            self.world.counters["store: away"] += 1
            raise StoreUnavailable("the store is away")

    def reread(self) -> StoreInfo:
        self._reach()
        if self.still_here():
            self.info = self.base.reread()
        return self.info

    def hear(self, told: Any) -> bool:
        return False

    def around(self, session: str, tenant: str | None, most: int) -> Any:
        return asked_singly(self, session, tenant, most)  # much may happen between one and the next

    def journals(self, streams: Any) -> Any:
        return {stream: self.rows(*stream) for stream in streams}  # type: ignore[attr-defined]

    def still_here(self) -> bool:
        return self.base.still_here() if self.world.folder else self.file == self.world.file

    def commit(self, units: Any) -> Any:
        self._reach()
        if not (self.world.folder or self.still_here()):
            raise StoreUnavailable("the store was replaced while it was open")
        self.base._writing._passed, self.world.committing = self._passed, True
        try:
            outcomes = self.base.commit(units)
        finally:
            self.world.committing = False
        lost = self.world.outside.chance(0.03)
        lane = self.world.sim.lane
        self.world.losses.landed(None if lost or lane is None else lane.proc, units, outcomes)
        if lost:
            self.world.counters["commits: reply lost"] += 1
            raise StoreUnavailable("the reply was lost")
        return outcomes

    def beat(self, *args: Any) -> bool:
        self._reach()
        if not (self.world.folder or self.still_here()):
            return False
        lane, began = self.world.sim.lane, self.world.sim.now
        beaten = self.base.beat(*args)
        self.world.losses.beats.setdefault(lane.proc, []).append(began)
        if self.world.outside.chance(0.03):
            self.world.counters["beats: reply lost"] += 1
            raise StoreUnavailable("the reply was lost")
        self._reach()
        if beaten:
            self.world.losses.beaten(lane.proc, args[0], args[3])
        return beaten

    def missing(self, seen: Any) -> str:
        self._reach()
        if self.file != self.world.file and not self.world.folder:
            raise StoreUnavailable("the store was replaced while it was open")
        self.world.losses.looked(seen)
        return self.base.missing(seen)

    def attach(self, witness: Any) -> None:
        pass

    def close(self) -> None:
        pass


def _through(name: str) -> Callable[..., Any]:
    def call(self: SimStore, *args: Any, **kwargs: Any) -> Any:
        self._reach()
        if self.file != self.world.file and not self.world.folder:
            raise StoreUnavailable("the store was replaced while it was open")
        return getattr(self.base, name)(*args, **kwargs)

    return call


for _name in (
    "permit_ttl", "note_unfenced", "highest_at", "open_session", "fence", "sessions", "session", "head", "rows",
    "task", "find_task", "tasks", "tasks_after", "unfinished", "ages", "effect", "effects", "effects_after", "unknown", "held",
    "orphans", "counts", "tally", "next_due", "foreign", "streams", "heads", "holds", "sizes", "changed",
):  # fmt: skip
    setattr(SimStore, _name, _through(_name))


class SimRuntime(Runtime):
    """The shipped one, with a kernel, a clock and a disk of this world."""

    def __init__(self, machine: Machine, effects: Any, created: bool) -> None:
        self.machine = machine
        store: Any = SimStore(machine.world, created)
        super().__init__(store, effects, ttl=TTL, kernel_timer=False, clock=SimClock(machine.world))
        self.watchdog = SimWatchdog(machine)
        self.desk.writer._patience = 10.0


class World:
    """A seed's world. story: whether it is told."""

    def __init__(self, seed: int, folder: Path | None, *, tell: bool = False) -> None:
        self.seed, self.folder = seed, folder
        self.handles: list[SQLite] = []
        self.base = self.open_file() if folder else empty_store()
        self.sim = Sim(seed)
        self.random = self.sim.random
        self.counters: Counter[str] = Counter()
        self.tell, self.lines = tell, list[str]()
        self.outside = Outside(self.sim, self.counters, self.story)
        self.files: dict[str, str] = {}
        self.file = 0
        self.away_until, self.slowness, self.offset = -1.0, 0.0, 0.0
        self.people_lane: Any = None
        self.committing = False
        self.machines: list[Machine] = []
        self.gone: dict[int, Machine] = {}
        self.restored = 0
        self.copied = b""
        self._pids = 100
        self._started = 0
        self.errors: list[str] = []
        self.losses, self.aways = Losses(self), list[float]()

    def story(self, line: str) -> None:
        if self.tell:
            self.lines.append(f"{self.sim.now:9.3f}  {line}")

    # --- the store ---

    def open_file(self) -> SQLite:
        """One more process has the store's file open."""
        self.handles.append(SQLite(str(self.path)))
        return self.handles[-1]

    @property
    def path(self) -> Path:
        assert self.folder is not None
        return self.folder / "agent.db"

    def copy(self) -> None:
        """A backup."""
        self.losses.copy()
        if self.folder:
            target = apsw.Connection(str(self.folder / "copy.db"))
            copied(self.base._writer.raw, target)
            target.close()
        else:
            self.copied = self.base._writer.raw.serialize("main")

    def restore(self, *, replaced: bool) -> None:
        """The backup takes the store's place: under its name, or in the very file that all have open."""
        self.file += replaced
        before = self.losses.told()
        if not self.folder:
            put_in_place(self.base, self.copied)
        elif replaced:
            shutil.copy(self.folder / "copy.db", self.folder / "new.db")  # which nobody has open
            (self.folder / "new.db").rename(self.path)
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink()
            self.base = self.open_file()
        else:
            source = apsw.Connection(str(self.folder / "copy.db"))
            copied(source, self.base._writer.raw)
            source.close()
        self.losses.restored(before)

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    # --- processes ---

    def start_worker(self) -> None:
        """A new process on one of the hosts."""
        self._started += 1
        draw = self.random
        host = "here" if self.one_host or draw.random() < 0.5 else "there"
        machine = Machine(self, f"W{self._started}", host, timer=draw.random() >= self.untimed)
        if not machine.timer:
            self.counters["workers without the kernel timer"] += 1
        self.machines.append(machine)
        self.gone[machine.pid] = machine
        concurrency = draw.choice((1, 2, 4))
        self.story(f"{machine.name} starts on {host}{'' if machine.timer else ', without the kernel timer'}")
        self.sim.spawn(machine, "main", lambda: self._main(machine, concurrency))

    def app_of(self, machine: Machine, created: bool = False) -> semel.App:
        """The agents' code, in this process."""
        app = semel.App("sqlite:///:memory:", tenant=None)
        app.declared_effects, app.declared_steps = sim_agents.app.declared_effects, sim_agents.app.declared_steps
        app.declared_tasks = sim_agents.app.declared_tasks
        app._stage = lambda: SimRuntime(machine, app.declared_effects, created)
        machine.app = app
        return app

    def _main(self, machine: Machine, concurrency: int) -> None:
        """What `semel worker` does."""
        app = self.app_of(machine, created=self._first())
        loop = Loop()
        worker = machine.worker = workers.Worker(app, queues=None, concurrency=concurrency, until_idle=False)
        try:
            loop.run_until_complete(worker.run())
            app.runtime.close()
            self.counters["graceful stops"] += 1
        except StoreUnavailable as error:
            self.story(f"{machine.name} ends: {error}")
            self.counters["workers that were fenced"] += 1
            with contextlib.suppress(StoreUnavailable):
                asyncio.runners._cancel_all_tasks(loop)  # type: ignore[attr-defined]
        self.exit(machine)

    def _first(self) -> bool:
        first, self._none_yet = self._none_yet, False
        return first

    def arm(self, machine: Machine, deadline: float) -> None:
        """The kernel's timer."""
        machine.deadline = deadline
        self.sim.at(deadline, lambda: self._fire(machine, deadline))

    def _fire(self, machine: Machine, deadline: float) -> None:
        if machine.deadline == deadline and not machine.dead:
            self.counters["killed by the kernel timer"] += 1
            self.kill(machine, "by its kernel timer")

    def kill(self, machine: Machine, why: str = "") -> None:
        """SIGKILL."""
        if not machine.dead:
            self.story(f"{machine.name} is killed {why}")
            self.exit(machine)

    def exit(self, machine: Machine) -> None:
        machine.dead, machine.died = True, self.sim.now
        if machine in self.machines:
            self.machines.remove(machine)
            self.sim.at(self.sim.now + self.random.uniform(0.2, 5.0), self._replace)

    def _replace(self) -> None:
        if len(self.machines) < self.most_workers:
            self.start_worker()

    def proved_dead(self, other: Identity, own: Identity) -> bool:
        """R14, as the kernel would tell: only of a process on the asker's own machine."""
        known = self.gone.get(other.pid)
        dead = known is not None and known.dead and other.host == own.host and self.provable
        self.counters["proofs of death"] += dead
        return dead

    # --- the whole ---

    def play(self) -> None:
        """All of it: the storm, and the calm in which everything must end."""
        from sim_happenings import Happenings

        draw = self.random
        self._none_yet = draw.random() < 0.8
        self.one_host, self.provable = draw.random() < 0.5, draw.random() < 0.7
        self.untimed = draw.choice((0.0, 0.0, 0.0, 0.5))
        self.most_workers = draw.choice((2, 2, 2, 3, 4))
        self.slowness = draw.choice((0.0, 0.01, 0.05))
        self.outside.faults = draw.choice((0.3, 1.0, 1.5))
        self.happenings = Happenings(self)
        for _ in range(self.most_workers):
            self.start_worker()
        self.happenings.begin()
        self.sim.run(self.happenings.over, HORIZON)

    def close(self) -> None:
        self.sim.end()
        for handle in self.handles:
            handle.close()


class _Random:
    """Bytes and numbers for the shipped code, from the seed."""

    @staticmethod
    def urandom(count: int) -> bytes:
        return sim().random.randbytes(count)

    @staticmethod
    def eight() -> bytes:
        return sim().random.randbytes(8)

    @staticmethod
    def random() -> float:
        return sim().random.random()

    @staticmethod
    def uuid7() -> str:
        here = sim()
        return f"{EPOCH_MS + int(here.now * 1000):012x}-{here.random.getrandbits(64):016x}"

    uuid4 = uuid7


class _Threads:
    """Each process's own pool."""

    @staticmethod
    def run(work: Callable[[], None]) -> None:
        lane = sim().lane
        if lane is None:
            raise Over
        lane.proc.threads.run(work)  # type: ignore[attr-defined]


WORLD: list[World] = []


def _machine() -> Machine:
    lane = sim().lane
    assert lane is not None
    return lane.proc  # type: ignore[return-value]


class Complaints(logging.Handler):
    """An error with a traceback on the log is a bug of somebody's, and in the story all is told."""

    def emit(self, record: logging.LogRecord) -> None:
        if not WORLD:
            return
        world = WORLD[-1]
        if world.tell:
            lane = world.sim.lane
            world.story(f"{lane.proc.name if lane else ''} says: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StoreUnavailable | Over):
            world.errors.append(f"{record.getMessage()}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def in_virtual_time() -> Iterator[None]:
    """The shipped modules have this folder's threads, clock and chance, and give them back."""
    threaded = (apps, writer, ledger, session, standing, runtime, drive, witness, attempt)
    patches: list[tuple[Any, str, Any]] = [(module, "threading", Threading) for module in threaded]
    patches += [(module, "time", Time) for module in (writer, session, standing, drive, witness)]
    patches += [(module, "uuid_utils", _Random) for module in (queue, session, arrival)]
    patches += [
        (ledger, "_random", _Random), (session, "os", _Random), (attempt, "random", _Random), (turns, "random", _Random),
        (drive, "THREADS", _Threads), (Identity, "own", staticmethod(lambda: _machine().identity)),
        (session, "proof_of_death", lambda other, own: WORLD[-1].proved_dead(other, own)),
        (arrival, "proof_of_death", lambda other, own: WORLD[-1].proved_dead(other, own)),
        (runtime, "Witness", lambda info, missing: SimWitness(info, missing, _machine())),
        (workers, "POLL_SECONDS", 1.0), (workers, "IDLE_POLL_SECONDS", 1.2), (workers, "LOOK_SECONDS", 2.5),
        (workers, "GRACE_SECONDS", 3.0), (workers, "GIVE_BACK_SECONDS", 2.0),
    ]  # fmt: skip
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    said, complaints = logging.getLogger("semel"), Complaints()
    quiet = logging.getLogger("asyncio")
    levels = (said.level, said.propagate, quiet.level)
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        said.addHandler(complaints)
        said.propagate = False
        said.setLevel(logging.ERROR)
        quiet.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        said.removeHandler(complaints)
        said.setLevel(levels[0])
        said.propagate = levels[1]
        quiet.setLevel(levels[2])


def copied(source: apsw.Connection, target: apsw.Connection) -> None:
    """All of a database, in one step."""
    with target.backup("main", source, "main") as backup:
        backup.step()


def put_in_place(base: SQLite, image: bytes) -> None:
    """What a store in memory holds from now on. Its one connection has not written it, but another one in another life."""
    base._writer.raw.deserialize("main", image)
    base._writing._version = None


IMAGE: list[tuple[SQLite, bytes]] = []


def image() -> tuple[SQLite, bytes]:
    """A store in memory that was made once, and what it looked like then."""
    if not IMAGE:
        base = SQLite(":memory:")
        meta = {"id": "store", "application": "application", "epoch": str(EPOCH_MS // 1000 - 1000)}
        for name, value in meta.items():
            base._writer.raw.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
        base.permit_ttl(LARGEST_TTL_MS)
        IMAGE.append((base, base._writer.raw.serialize("main")))
    return IMAGE[0]


def empty_store() -> SQLite:
    """A new store in memory."""
    base, what = image()
    put_in_place(base, what)
    base.reread()
    return base


def empty_file(folder: Path) -> None:
    """A new store in a folder."""
    target = apsw.Connection(str(folder / "agent.db"))
    copied(empty_store()._writer.raw, target)
    target.close()


@contextlib.contextmanager
def world_of(seed: int, *, tell: bool = False, on_file: bool = False) -> Iterator[World]:
    """A world, and its end. on_file: each process opens the store's file for itself."""
    with contextlib.ExitStack() as last:
        folder = Path(last.enter_context(tempfile.TemporaryDirectory(prefix="semel-world-"))) if on_file else None
        if folder is not None:
            empty_file(folder)
        world = World(seed, folder, tell=tell)
        SIM.append(world.sim)
        WORLD.append(world)
        sim_agents.OUTSIDE.append(world.outside)
        world.counters["worlds on a file"] += on_file
        if tell:
            logging.getLogger("semel").setLevel(logging.WARNING)
        try:
            yield world
        finally:
            world.close()
            sim_agents.OUTSIDE.pop()
            WORLD.pop()
            SIM.pop()
