"""The parent of worker processes: starts them, and leaves nothing of a dead one alive before the next begins.

The kernel timer (`semel.watchdog`) kills a worker, and only the worker: its shell or browser would act on. Here every
worker leads a process group, and this process is a child subreaper. When a worker dies, its group is killed, and then
whatever was re-parented to us (a grandchild that called setsid has left the group, but the kernel hands it to the
nearest subreaper once its parent is dead), again and again until nothing is left.

What this does not close, and why an effect that makes a child is recorded unfenced all the same:

- A supervisor that is itself frozen or stopped kills nobody. From a worker's death to the kill it takes milliseconds.
- A supervisor that is killed takes its workers along (PR_SET_PDEATHSIG), but not their children. Only a PID namespace
  or a cgroup, ended as a whole, does that; in a container, the supervisor as PID 1 gives the former.
- A set-user-id program that a worker started may not be ours to kill. It is reported, and left.

An orphan's parent is dead by definition, so it belonged to a dead worker, or is a daemon that a living one forked
twice. The two cannot be told apart: **whenever a worker dies, the daemons of the others are killed too.**
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from semel.errors import Misuse
from semel.watchdog import proc_is_ours, read_stat

__all__ = ["CONFIGURATION_ERROR", "RESTART_VARIABLE", "SUPERVISOR_VARIABLE", "die_with_parent", "supervise"]

CONFIGURATION_ERROR = 2
"""A worker's exit code for: starting me again changes nothing."""

SUPERVISOR_VARIABLE = "SEMEL_SUPERVISOR"
"""Set in each worker's environment: the supervisor's pid, for `die_with_parent`."""

RESTART_VARIABLE = "SEMEL_RESTARTS"
"""Set in each worker's environment: how many there have been in its place before it."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_QUICK = 5.0  # seconds: a worker that died younger than this waits before it is started again ...
_FIRST_DELAY, _LAST_DELAY = 0.1, 5.0  # ... this long at the second such death in a row, doubling up to that
_SWEEP_AGAIN = 0.01  # seconds between two looks for orphans that were killed and are not dead yet

Target = Sequence[str] | Callable[[], int | None]


def _prctl(option: int, argument: Any) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, argument, *[ctypes.c_ulong(0)] * 3) == 0)
    except (OSError, AttributeError):  # no such call off Linux
        return False


def die_with_parent(expected_ppid: int) -> None:
    """Have the kernel SIGKILL this process when its parent dies; end at once if `expected_ppid` is not the parent now.

    To be called first thing by a worker, with the pid in SEMEL_SUPERVISOR. The supervisor has asked for the same before
    the exec; this is for programs that lose it there (set-user-id, file capabilities) and closes the gap in which the
    parent dies first. So nothing may stand between the two: give `supervise` a command that execs, not one that forks.
    The kernel means the parent *thread*; `supervise` insists on the main one. Off Linux only the pid is compared.
    """
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    # Asked afterwards: a parent that died before the prctl sends no signal
    if os.getppid() != expected_ppid:
        os._exit(1)


def supervise(
    argv: Target,
    processes: int,
    *,
    env: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> int:
    """Run `processes` workers and keep them running; returns the exit code for this process, once all are gone.

    Args:
        argv: a command, looked up in PATH and exec'ed, or a function, called in a forked child; what it returns (or its
            SystemExit) is the exit code, without running exit handlers.
        processes: how many, at least 1.
        env: added to the workers' environment, beside SEMEL_SUPERVISOR.
        report: called with one line for each thing that a person should know; default: standard error.

    A worker that exits with 0 has finished. One that exits with 2 has a wrong configuration and is not started again; 2
    is then the result. After any other death it is started again: at once the first time, and as long as it lives under
    5 s after 0.1, 0.2, ... up to 5 s. Always, its descendants are killed first (see the module's docstring).

    The first SIGTERM or SIGINT to this process is passed on to the workers as SIGTERM (finish what you have), a second
    one as another (stop at once), a third as SIGKILL. Nothing is started after the first. The result is the worst of
    the workers' last exit codes, where death by signal n counts as 128 + n.

    Children that the caller had before are left alone. Raises Misuse outside the main thread, beside other threads (it
    forks), with another PID namespace's /proc, and for wrong arguments.
    """
    if processes < 1 or not (callable(argv) or (argv and not isinstance(argv, str))):
        raise Misuse(f"supervise needs a command as a list, or a function, and at least one process, not {processes}")
    if threading.current_thread() is not threading.main_thread() or threading.active_count() != 1:
        raise Misuse("supervise forks: call it in the main thread, before any other thread is started")
    report = report or _to_stderr
    if not sys.platform.startswith("linux"):
        report("this is not Linux: what workers leave behind when they die is neither found nor killed")
    elif not proc_is_ours():  # its numbers would be other processes, and we would kill those
        raise Misuse("/proc is not this PID namespace's: mount it here (unshare --mount-proc; containers do it by default)")
    with _subreaper(), _signals() as wake:
        return _Supervisor(argv, processes, dict(env or {}), report, wake).run()


def _to_stderr(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the supervisor
        print(f"semel: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    before = ctypes.c_int(0)
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(before.value))


@dataclass(frozen=True)
class _Wake:
    """Where signals arrive (one byte each), and how things were before."""

    read: int
    write: int
    handlers: Mapping[signal.Signals, Any]
    wakeup_fd: int

    def restore(self) -> None:
        signal.set_wakeup_fd(self.wakeup_fd)
        for number, handler in self.handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self.read)
        os.close(self.write)


@contextlib.contextmanager
def _signals() -> Iterator[_Wake]:
    """Turn the signals into bytes in a pipe: poll() wakes at once, none is lost between a look and a wait, and two
    SIGTERMs in a row are two (a Python handler would see one)."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    handlers = {number: signal.getsignal(number) for number in (*_STOP_SIGNALS, signal.SIGCHLD)}
    for number in handlers:
        signal.signal(number, lambda *_: None)
    wake = _Wake(read, write, handlers, before)
    try:
        yield wake
    finally:
        wake.restore()


@dataclass
class _Slot:
    """One worker's place."""

    pid: int | None = None
    started: float = 0.0
    due: float | None = 0.0  # when to start it next (monotonic seconds); None while it runs or once it is over
    quick_deaths: int = 0
    starts: int = 0
    code: int = 0  # of the last one that ended


class _Child(NamedTuple):
    pid: int
    dead: bool


class _Supervisor:
    def __init__(self, target: Target, processes: int, env: dict[str, str], report: Callable[[str], None], wake: _Wake) -> None:
        self._target = target
        self._env = env
        self._report = report
        self._wake = wake
        self._pid = os.getpid()
        self._slots = [_Slot() for _ in range(processes)]
        self._stops = 0
        self._restarts = 0  # of the place whose worker is being started
        self._sweeping = False
        self._killed: set[int] = set()  # orphans, for the report
        self._unkillable: set[int] = set()
        self._not_ours: frozenset[int | None] = frozenset()
        self._not_ours = frozenset(child.pid for child in self._children())

    def run(self) -> int:
        try:
            return self._loop()
        except BaseException:  # a bug, or `report` raised: the caller may live on, and must not with workers unwatched
            self._report = lambda _: None
            self._stops = 2
            self._stop()
            self._loop()
            raise

    def _loop(self) -> int:
        while True:
            child_died = self._read_signals()
            self._bury_workers()
            if self._sweeping or child_died:
                self._sweep()
            if not self._sweeping:
                if all(slot.pid is None and slot.due is None for slot in self._slots):
                    return self._result()
                self._start_due()
            self._wait()

    def _result(self) -> int:
        codes = [slot.code for slot in self._slots]
        return CONFIGURATION_ERROR if CONFIGURATION_ERROR in codes else max(codes)

    # Signals

    def _wait(self) -> None:
        now = time.monotonic()
        due = [slot.due for slot in self._slots if slot.due is not None]
        seconds = _SWEEP_AGAIN if self._sweeping else max(0.0, min(due) - now) if due else None
        poll = select.poll()
        poll.register(self._wake.read, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)

    def _read_signals(self) -> bool:
        """Act on what has arrived. True if a child has died, as far as one can know."""
        try:
            received = os.read(self._wake.read, 4096)
        except BlockingIOError:
            return False
        for number in received:
            if number in _STOP_SIGNALS:
                self._stop()
        return signal.SIGCHLD in received

    def _stop(self) -> None:
        self._stops += 1
        how = signal.SIGTERM if self._stops < 3 else signal.SIGKILL
        for slot in self._slots:
            slot.due = None
            if slot.pid is not None:
                os.kill(slot.pid, how)  # not yet waited for, so the number is still its own
        self._report(f"stopping ({self._stops}): {how.name} to the workers")

    # Starting

    def _start_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if slot.due is not None and slot.due <= now:
                self._start(slot)

    def _start(self, slot: _Slot) -> None:
        self._restarts = slot.starts
        slot.starts += 1
        # Held back around the fork: a signal that reached the child before it has the default handlers would be lost
        watched = {*_STOP_SIGNALS, signal.SIGCHLD}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        try:
            slot.started = time.monotonic()
            with contextlib.suppress(OSError, ValueError):
                _flush()  # or the child would write it a second time
            pid = os.fork()
            if pid == 0:
                self._become_worker(mask)
            slot.pid, slot.due = pid, None
        except OSError as error:  # no memory, or too many processes
            slot.code = 1
            slot.due = time.monotonic() + self._delay(slot)
            self._report(f"cannot start a worker ({error}); trying again")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _become_worker(self, mask: set[int]) -> NoReturn:
        """In the child. Never returns, whatever happens: two supervisors would start everything twice."""
        code = 1
        try:
            code = self._work(mask) & 0xFF
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                _flush()
            os._exit(code)

    def _work(self, mask: set[int]) -> int:
        os.setsid()  # a group of its own, and no terminal: its Ctrl-C goes to the supervisor alone
        die_with_parent(self._pid)
        self._wake.restore()
        os.environ.update(self._env, **{SUPERVISOR_VARIABLE: str(self._pid), RESTART_VARIABLE: str(self._restarts)})
        if not callable(self._target):
            return _exec(self._target, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            return self._target() or 0
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1

    # Burying

    def _bury_workers(self) -> None:
        for slot in self._slots:
            if slot.pid is None:
                continue
            # Looked at without being waited for: as long as it is a zombie, nobody else can get its number, and the
            # group that is killed is surely its own
            if os.waitid(os.P_PID, slot.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            _kill_group(slot.pid)
            _, status = os.waitpid(slot.pid, 0)
            self._settle(slot, os.waitstatus_to_exitcode(status))
            self._sweeping = True

    def _settle(self, slot: _Slot, code: int) -> None:
        """Decide what becomes of a place whose worker has ended with `code`, negative for a signal."""
        how = f"exited with {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        line = f"worker {slot.pid} {how}"
        slot.pid, slot.code = None, code if code >= 0 else 128 - code
        if self._stops or code == 0:
            self._report(line)
        elif code == CONFIGURATION_ERROR:
            self._report(f"{line}: its configuration is wrong, so it is not started again")
        else:
            delay = self._delay(slot)
            slot.due = time.monotonic() + delay
            self._report(f"{line}; starting another in {delay:g} s")

    def _delay(self, slot: _Slot) -> float:
        if time.monotonic() - slot.started >= _QUICK:
            slot.quick_deaths = 0
        slot.quick_deaths += 1
        if slot.quick_deaths == 1:
            return 0.0
        return float(min(_LAST_DELAY, _FIRST_DELAY * 2 ** min(slot.quick_deaths - 2, 10)))

    def _sweep(self) -> None:
        """Wait for dead orphans, and if a worker has died kill the living ones; over when a look finds none at all.

        Such a look is proof. Only we wait for our children, and not while we look: if any descendant of the dead worker
        is alive, the topmost of its line was our child before the look, is still, living or zombie, and is found.
        """
        if self._sweeping:
            self._strike()
        while True:
            orphans = [child for child in self._children() if self._sweeping or child.dead]
            for child in orphans:
                if child.dead:
                    os.waitpid(child.pid, os.WNOHANG)
                    self._unkillable.discard(child.pid)
                elif child.pid not in self._unkillable:
                    self._kill_orphan(child.pid)
            if not any(child.dead for child in orphans):
                break  # nothing but the living: their deaths will wake us
        if self._sweeping and all(child.pid in self._unkillable for child in orphans):
            self._sweeping = False
            if self._killed:
                self._report(f"killed {len(self._killed)} processes that dead workers had left behind")
            self._killed.clear()

    def _strike(self) -> None:
        """Kill by the kernel's own list of our children: it may be incomplete, but a look over /proc takes a tenth of a
        second where thousands of processes run. Not every kernel has it."""
        try:
            listed = Path(f"/proc/self/task/{self._pid}/children").read_text("ascii").split()
        except OSError:
            return
        for pid in {int(name) for name in listed} - self._skipped() - self._unkillable:
            self._kill_orphan(pid)

    def _kill_orphan(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)  # our child, not waited for: the number is its own
            self._killed.add(pid)
        except PermissionError:
            self._report(f"process {pid}, left behind by a worker, may not be killed by this user: look after it")
            self._unkillable.add(pid)

    def _skipped(self) -> set[int | None]:
        return {*self._not_ours, *(slot.pid for slot in self._slots)}

    def _children(self) -> list[_Child]:
        """Every child that is not a worker and was not there before us."""
        skip = self._skipped()
        found = []
        for pid in _pids():
            stat = None if pid in skip else read_stat(pid)
            if stat is not None and stat.parent == self._pid:
                # A leader that has exited while its threads run on is not dead, though it shows as Z
                found.append(_Child(pid, stat.state in "ZX" and stat.threads <= 1))
        return found


def _pids() -> list[int]:
    if not sys.platform.startswith("linux"):
        return []
    try:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _kill_group(pid: int) -> None:
    # ProcessLookupError: it died before it led a group, so nobody is in it
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _exec(argv: Sequence[str], mask: set[int]) -> int:
    """Become `argv`; returns only if that failed, with the exit code."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python for itself; other programs expect the default
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606  (no shell is the point)
    except OSError as error:
        print(f"semel: cannot run {argv[0]!r}: {error.strerror}", file=sys.stderr)
        hopeless = {errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC}
        return CONFIGURATION_ERROR if error.errno in hopeless else 1
