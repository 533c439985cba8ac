"""The whole crash test: a dry run, a run for each injection point that it found, verdicts, and the diagnosis."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from semel.app import App
from semel.decorated import Task
from semel.errors import Misuse, SemelError
from semel.model import Delivery, EffectState, EffectView
from semel.testing.crashtest import faults, points, scenario
from semel.testing.crashtest.points import Boundary, Point
from semel.testing.crashtest.probes import Calls, Probe, Sandbox
from semel.testing.crashtest.records import Fault, Run
from semel.testing.crashtest.report import Report, Row, Verdict
from semel.testing.crashtest.stores import Stores, stores_at
from semel.testing.crashtest.world import Interrupted, Kit, Stuck, World

KEY = "crashtest"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Options:
    """How it is run. really: without the sandbox, every run calls the app's real effects, under new keys; that must be said.

    store: the URL of a throw-away database, "postgres" for one that is started, "" for SQLite files.
    sandbox_env: the environment variable that tells the app where the sandbox provider is; "": none is started.
    jobs: runs at a time. only: those whose name holds this text. lease: seconds. settle: Lookup's at most, seconds.
    timeout: for one wait, seconds; None: by the dry run. key, tenant: as `semel enqueue` has them.
    keep: leave stores and logs where they are, and note where. harmless: hosts, programs and files that handlers may reach.
    """

    probe: Callable[..., Any] | None = None
    sandbox_env: str = ""
    really: bool = False
    store: str = ""
    jobs: int = 4
    only: str = ""
    lease: float = 2.0
    settle: float | None = None
    timeout: float | None = None
    key: str | None = None
    tenant: str | None = None
    keep: bool = False
    harmless: Sequence[str] = ()
    progress: Progress = lambda done, of: None


@dataclass
class Outcome:
    """One run, as it ended."""

    row: Row
    run: Run


@dataclass
class Crashtest:
    """One crash test. dry: effects by name in the dry run."""

    kit: Kit
    options: Options
    folder: Path
    stores: Stores
    dry: Counter[str] = field(default_factory=Counter)
    boundaries: list[Boundary] = field(default_factory=list)
    number: int = 0
    uncounted: list[str] = field(default_factory=list)  # effects of the dry run that happened, and that nobody counts

    def world(self, *, during: float = 0.0) -> World:
        """A new one."""
        self.number += 1
        folder = self.folder / f"run{self.number}"
        folder.mkdir()
        return World(self.kit, folder, self.stores, during=during)

    # --- the dry run ---

    def dry_run(self) -> Outcome:
        """One worker, no harm: what the task comes to. Raises `SemelError` if it does not end well by itself.

        Once more if its probe does not count by key: only then is it known what was there before. Raises `Misuse` if an effect
        that happened is not counted: no run could show anything of it.
        """
        outcome = self._dry_run()
        if self.kit.counts.alone:
            outcome = self._dry_run()
        if self.uncounted:
            raise Misuse(self.kit.counts.unable(self.uncounted[0], self.kit.sandbox))
        return outcome

    def _dry_run(self) -> Outcome:
        began = time.monotonic()
        world = self.world()
        try:
            world.enqueue()
            world.start()
            try:
                world.finish(patient=False)
            except Stuck as stuck:
                raise SemelError(self._why_not(world, stuck)) from None
            calls = {note["key"]: (note["began"], note["at"]) for note in world.room.notes() if note["what"] == "ended"}
            declared = self.kit.app.declared_effects
            rungs = {found.first_name: found.rungs for name in declared.names() if (found := declared.get(name)) is not None}
            self.boundaries = points.found(world.rows(), calls, rungs)
            self.kit.results.update({(at.name, at.n): at.result for at in self.boundaries if at.what == "effect"})
            self.kit.counts.learn(world, self.boundaries)
            self.dry = confirmed(world.effects())
            seconds = time.monotonic() - began
            self.kit.patience = self.options.timeout or 30 + 10 * seconds + 5 * self.kit.lease + self._settle()
            outcome = self._outcome(world, Point("nothing is harmed", "dry"), "", "", began)
            self.uncounted = uncounted(world.effects(), outcome.run.counted) if self.kit.counts.resource else []
            return outcome
        finally:
            world.close()

    def _why_not(self, world: World, stuck: Stuck) -> str:
        """What to say of a dry run that did not end well. A worker that wrote of an error has more to say than we have."""
        raised = world.raised()
        wrote = f"; its worker wrote: {raised}" if raised and raised not in str(stuck) else ""
        failed = any(row.execution == "failed" for row in world.tasks())
        mend = "mend that first" if raised and not failed else "give arguments with which it succeeds"
        logs = "" if self.options.keep else "; --keep keeps its logs"
        return f"the dry run, in which nothing is harmed, did not end well: {stuck}{wrote}; {mend}{logs}"

    def _settle(self) -> float:
        """The longest settle of a lookup, seconds."""
        effects = [self.kit.app.declared_effects.get(name) for name in self.kit.app.declared_effects.names()]
        longest = max((r.settle_ms for e in effects if e for r in e.rungs if r.kind == "lookup"), default=0) / 1000
        return 2 * (longest if self.options.settle is None else min(longest, self.options.settle))

    # --- one run ---

    def one(self, point: Point) -> Outcome:
        """Play an injection in a world of its own."""
        began = time.monotonic()
        at = point.at
        during = 0.0
        if at is not None:
            during = scenario.LATE_MIDDLE if self.kit.sandbox else at.seconds * points.MIDDLE
        world = self.world(during=during)
        try:
            stuck = ""
            try:
                scenario.play(world, point)
            except Stuck as error:
                stuck = str(error)
            return self._outcome(world, point, self._of(point), stuck, began)
        finally:
            world.close()

    def _of(self, point: Point) -> str:
        at = point.at
        if at is None or point.how in points.OF_TASK:
            return self.kit.order.kind
        several = sum(1 for other in self.boundaries if other.name == at.name) > 1
        return f"{at.name} #{at.n}" if several else at.name

    def _kind(self, point: Point) -> str:
        if point.at is None or point.how in points.OF_TASK:
            return "" if point.how == "dry" else "task"
        return f"effect, {point.at.rung}" if point.at.what == "effect" else "step"

    def _outcome(self, world: World, point: Point, of: str, stuck: str, began: float) -> Outcome:
        effects, gone = world.effects(), world.gone()
        counted = world.counted()
        verdict, why = self.judge(world, point, effects, counted, stuck)
        row = Row(
            of, self._kind(point), point.title, point.expected, self._observed(world), by_name([*effects, *gone], counted),
            sum(self.dry.values()), verdict, why, tuple(world.told), time.monotonic() - began,
        )  # fmt: skip
        logs = [path for n in range(len(world.workers)) if (path := world.folder / f"watch{n + 1}.jsonl").exists()]
        name = points.DRY if point.how == "dry" else row.name
        return Outcome(row, Run(name, logs, counted if self.kit.counts.resource else {}, world.journal()))

    def _observed(self, world: World) -> str:
        rows = [row for row in world.tasks() if row.kind == self.kit.order.kind]
        state = rows[-1] if rows else None
        if state is None:
            return "not there"
        end = str(state.execution) if state.delivery == Delivery.ACKNOWLEDGED else str(state.delivery)
        return f"person; {end}" if world.told else end

    def judge(
        self, world: World, point: Point, effects: Sequence[EffectView], counted: Mapping[str, int], stuck: str
    ) -> tuple[Verdict, str]:
        """The worst that is true of it, and why."""
        resource = self.kit.counts.resource
        repeats = {at.name for at in self.boundaries if at.rung == "repeat"}
        gone = world.gone()
        for effect in [*effects, *gone] if resource else ():
            if counted.get(effect.key, 0) > 1 and effect.name not in repeats:
                return "DUPLICATE", f"{effect.name} is there {counted[effect.key]} times ({effect.key}){world.denied(effect.key)}"
        there, undone = confirmed(effects), {at.name for at in self.boundaries if at.rung == "atomic"}  # by a restore
        again = Counter(e.name for e in gone if counted.get(e.key, 0) > 0 and (resource or e.name not in undone))
        for name, n in (there + again).items():
            if n > self.dry[name]:
                put_back = ", one of them from before the store was restored" if again[name] else ""
                return "DUPLICATE", f"{n} effects {name} of different keys{put_back}, and {self.dry[name]} in the dry run"
        if world.duplicates:
            return "DUPLICATE", world.duplicates
        for effect in effects if resource else ():
            if effect.state is EffectState.CONFIRMED and counted.get(effect.key, 0) < 1:
                none = "the resource shows none" if effect.key in counted else "nobody can count it"
                return "LOSS", f"{effect.name} is confirmed, and {none} ({effect.key})"
        if stuck:
            return "STUCK", stuck
        for row in world.tasks():
            if row.delivery != Delivery.ACKNOWLEDGED or row.execution != "succeeded":
                return "LOSS", f"task {row.kind} is {row.delivery}, {row.execution}: {world.why()}"
        for name, n in self.dry.items():
            if there[name] < n:
                return "LOSS", f"{there[name]} effects {name}, and {n} in the dry run"
        return self._strange(world, point, effects, counted)

    def _strange(
        self, world: World, point: Point, effects: Sequence[EffectView], counted: Mapping[str, int]
    ) -> tuple[Verdict, str]:
        if wrong := world.broken():
            return "FAULT", wrong
        for effect in effects if self.kit.counts.resource else ():
            if effect.state is EffectState.NOT_ATTEMPTED and counted.get(effect.key, 0) > 0:
                return "FAULT", f"{effect.name} is on record as not done, and the resource shows it ({effect.key})"
        if world.told and point.asks is False:
            return "STUCK", f"a person had to be asked ({'; '.join(world.told)}), where its recovery, or the record, should tell"
        if point.asks is True and not world.told:
            return "FAULT", "nobody was asked, and nothing else could tell what had become of it"
        if not world.lost:
            return "not shown", "no reply was lost: only those of HTTP/1 can be, if Python reads them itself, and it had none"
        return "pass", ""

    # --- all of them ---

    def all(self, wanted: Sequence[Point]) -> list[Outcome]:
        """In parallel; at an interrupt every process ends at once."""
        jobs = 1 if self.kit.counts.alone else self.options.jobs
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="semel-crashtest")
        futures: list[Future[Outcome]] = [pool.submit(self.one, point) for point in wanted]
        try:
            left = set(futures)
            while left:
                done, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
                self.options.progress(len(futures) - len(left), len(futures))
                for future in done:
                    future.result()
            return [future.result() for future in futures]
        except BaseException:
            self.kit.end()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def confirmed(effects: Sequence[EffectView]) -> Counter[str]:
    """How many different ones happened, by name."""
    return Counter(effect.name for effect in effects if effect.state is EffectState.CONFIRMED)


def uncounted(effects: Sequence[EffectView], counted: Mapping[str, int]) -> list[str]:
    """The names of effects that happened, and that nobody counts."""
    return [effect.name for effect in effects if effect.state is EffectState.CONFIRMED and effect.key not in counted]


def by_name(effects: Sequence[EffectView], counted: Mapping[str, int]) -> dict[str, int | None]:
    """Counts by effect's name; None: nobody counts it."""
    found: dict[str, int | None] = {}
    for effect in effects:
        n = counted.get(effect.key)
        before = found.get(effect.name)
        found[effect.name] = before if n is None else n + (before or 0)
    return found


def run(
    target: str, app: App, task: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Report:  # fmt: skip
    """Crash-test a task of the app that `target` (MODULE:app) names. Raises `Misuse`, and `SemelError` if it fails unharmed."""
    options = options or Options()
    began = time.monotonic()
    kit = _kit(target, app, task, tuple(args), dict(kwargs or {}), options)
    logging.getLogger("semel").addHandler(logging.NullHandler())  # what a store says that is put back is no news here
    with _folder(options.keep) as folder, stores_at(options.store) as stores:
        test = Crashtest(kit, options, folder, stores)
        try:
            dry = test.dry_run()
            wanted = [
                point
                for point in points.plan(test.boundaries, postgres=stores.postgres, unfenced=app._watchdog == "never")
                if options.only.lower() in f"{test._of(point)}: {point.title}".lower()
            ]
            if not wanted and options.only:
                raise Misuse(f"--only {options.only!r} leaves nothing; the injection points are those of a whole run")
            outcomes = [dry, *test.all(wanted)]
            rows, faults = [one.row for one in outcomes], diagnosis([one.run for one in outcomes], options.harmless)
        except (KeyboardInterrupt, Interrupted):
            kit.end()
            raise KeyboardInterrupt from None
        finally:
            kit.end()
    counts: Literal["probe", "sandbox", "calls"] = (
        "sandbox" if options.sandbox_env else "probe" if options.probe is not None else "calls"
    )
    return Report(
        target, task, "postgres" if stores.postgres else "sqlite", counts, rows, faults,
        time.monotonic() - began, [*_notes(test), *(f"{row.name}: {row.why}." for row in rows if row.verdict == "not shown")],
    )  # fmt: skip


def _kit(target: str, app: App, task: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Kit:
    app.load()
    work = app.declared_tasks.get(task)
    if work is None:
        known = ", ".join(app.declared_tasks.names()) or "none"
        raise Misuse(f"this app declares no task {task!r}; it has: {known}")
    if options.probe is not None and options.sandbox_env:
        raise Misuse("effects are counted by one of the two: by --probe, or on the record of the --sandbox provider")
    if isinstance(options.harmless, str):
        raise Misuse(f"harmless is a list of hosts, programs and files; write harmless=[{options.harmless!r}]")
    if options.jobs < 1 or options.lease < 1:
        raise Misuse("jobs is at least 1, and a lease at least 1 second")
    key = options.key or (None if work.intent else KEY)
    order = Task(app, work).using(key=key, tenant=options.tenant).order(args, kwargs)
    if not options.sandbox_env and not options.really:
        raise Misuse(
            "without --sandbox each run really calls your effects, a dozen runs or more for one effect, each under new keys, so "
            "that no provider's idempotency stops them. Point the app at a test account, then add --really (in pytest: "
            "really=True); or write --sandbox"
        )
    counts: Sandbox | Probe | Calls = (
        Sandbox() if options.sandbox_env else Probe(options.probe) if options.probe is not None else Calls()
    )
    kit = Kit(target, app, order, counts, options.lease, options.settle, options.sandbox_env)
    kit.patience = options.timeout or kit.patience  # of the dry run
    return kit


def _notes(test: Crashtest) -> list[str]:
    kit, notes = test.kit, []
    called = ", ".join(dict.fromkeys(at.name for at in test.boundaries if at.what == "effect"))
    if not kit.sandbox and called:
        notes.append(f"{test.number} runs, each really called {called}, under new keys.")
    if not kit.counts.resource:
        notes.append(
            "No probe: only semel's own record was judged, so a duplicate at the resource was not looked for. Name a function "
            "that counts there: --probe MODULE:function, or --sandbox."
        )
    if kit.counts.alone:
        notes.append(
            "The probe does not count by key (it found effects of a key that was never sent), so the runs went one by one, and "
            "what was there before each was subtracted."
        )
    if kit.app._watchdog == "never":
        notes.append("The app does without the watchdog, so a looked-up effect may need a person's word where it else would not.")
    if test.options.keep:
        notes.append(f"Stores, journals and logs of the runs: {test.folder}")
    return notes


@contextlib.contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    """A place for stores, records and logs, removed at the end; witnesses are kept there too, and not with the user's."""
    folder = Path(tempfile.mkdtemp(prefix="semel-crashtest-"))
    before = os.environ.get("SEMEL_WITNESS")
    (folder / "witness").mkdir()
    os.environ["SEMEL_WITNESS"] = str(folder / "witness")
    try:
        yield folder
    except SemelError as error:
        if keep:
            error.args = (f"{error}; stores, journals and logs of the runs: {folder}", *error.args[1:])
        raise
    finally:
        if before is None:
            del os.environ["SEMEL_WITNESS"]
        else:
            os.environ["SEMEL_WITNESS"] = before
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def diagnosis(runs: Sequence[Run], harmless: Sequence[str] = ()) -> list[Fault]:
    """What the user's own code does wrong."""
    return faults.found(runs, harmless)
