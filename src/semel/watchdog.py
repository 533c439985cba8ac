"""The kernel's part of the promise: a worker that oversleeps its lease is killed before it can act (R14, R16).

Three tools, all for one process and all of them Linux's:

- `Watchdog`: while a submission's code runs, a POSIX timer on CLOCK_BOOTTIME holds a SIGKILL at the local deadline. A
  process stopped, swapped out, suspended or stuck past it is killed by the kernel, and wakes up no more.
- `Identity` and `proof_of_death`: when may a reaper say at once that a process is gone, instead of watching its beat?
- `watching_children`: tells, before it happens, that code is about to make a child process. The timer kills only this
  process, and is not inherited: whatever a child does later is fenced by nobody.

What none of this can do: a machine paused from outside (a hypervisor) stops CLOCK_BOOTTIME and the timer along with the
process, so the code wakes with its deadline still ahead (`docs/design.md`, section 1).
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from semel.errors import Misuse

__all__ = ["Identity", "ProcessStat", "Watchdog", "boottime", "proc_is_ours", "proof_of_death", "read_stat", "watching_children"]

# CLOCK_BOOTTIME counts the time that the machine was suspended, and nobody can set it. Elsewhere the nearest clock
# serves to reckon deadlines by; the kernel timer then does not exist (`Watchdog.available`).
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))


def boottime() -> float:
    """Seconds on CLOCK_BOOTTIME: since the machine's start, suspended time included. Off Linux: CLOCK_MONOTONIC."""
    return time.clock_gettime(CLOCK)


# ---------------------------------------------------------------------------------------------------------------------
# Who is this process, and is that one dead?


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """From `/proc/<pid>/stat`. `start_time` is in clock ticks since boot, `threads` counts those not yet released."""

    state: str
    parent: int
    threads: int
    start_time: int


def read_stat(pid: int | str) -> ProcessStat | None:
    """Read `/proc/<pid>/stat` (`pid` may be "self"). None if it cannot be read or makes no sense."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        # The second field is the command's name in parentheses, and may itself hold spaces, parentheses and newlines:
        # only its last parenthesis is sure. Field n of proc(5) is fields[n - 3] from here.
        fields = text[text.rindex(b")") + 1 :].split()
        return ProcessStat(fields[0].decode("ascii"), int(fields[1]), int(fields[17]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, named so that another one on the same machine can tell whether it is gone.

    Units: `pid_ns` and `time_ns` are namespace inodes, `start_time` is in clock ticks since boot. An empty string or a
    0 means that it could not be read; a 0 in `time_ns` may also mean a kernel without time namespaces.
    """

    boot_id: str
    pid_ns: int
    time_ns: int
    pid: int
    start_time: int
    host: str

    @classmethod
    def own(cls) -> Identity:
        """This process, as it is now. Never raises. Not to be kept across a fork."""
        stat = read_stat("self")
        return cls(
            boot_id=_boot_id(),
            pid_ns=_namespace("pid"),
            time_ns=_namespace("time"),
            pid=os.getpid(),
            start_time=stat.start_time if stat else 0,
            host=socket.gethostname(),
        )


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _namespace(kind: str) -> int:
    try:
        return Path(f"/proc/self/ns/{kind}").stat().st_ino
    except OSError:
        return 0


def proof_of_death(other: Identity, own: Identity) -> bool:
    """True only if `other` can run no instruction any more (R14). False proves nothing. Never raises.

    Proof is: same machine, boot, PID and time namespaces, and then either that the kernel knows no such process, or
    that its number belongs to a process started at another time, or that it is a zombie without a thread left alive.
    What cannot be read or asked (EPERM, hidepid, another namespace's /proc) is no proof. `own` must be the caller.

    Hosts must have the same name too, which R14 does not ask: machines cloned from one memory snapshot share boot id
    and namespace inodes, and often only their names differ. Clones with one name cannot be told apart here.
    """
    if not _same_world(other, own):
        return False
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    if not other.start_time or not proc_is_ours():
        return False
    seen = read_stat(other.pid)
    if seen is None:
        return False
    return seen.start_time != other.start_time or (seen.state in "ZX" and _no_thread_left(other))


def _same_world(other: Identity, own: Identity) -> bool:
    """May `other`'s pid be asked for here? `own` is read anew: it may have been kept over a fork to a new namespace."""
    if other.pid <= 0 or not other.boot_id or not other.pid_ns:  # kill(0) and kill(-1) address groups
        return False
    now = Identity.own()
    keys = [(i.boot_id, i.pid_ns, i.time_ns, i.host) for i in (other, own, now)]
    return keys[0] == keys[1] == keys[2] and (own.pid, own.start_time) == (now.pid, now.start_time)


def proc_is_ours() -> bool:
    """Does /proc number processes as this one's PID namespace does? A container may have mounted another's."""
    try:
        return str(Path("/proc/self").readlink()) == str(os.getpid())
    except OSError:
        return False


def _no_thread_left(other: Identity) -> bool:
    """Called when the group's leader is known to be a zombie: are all its threads gone too?

    A leader that has exited shows as Z while its other threads run on. Everything is read *after* the Z was seen: the
    leader starts no thread any more, so with nobody beside it there is nobody left who could.
    """
    seen = read_stat(other.pid)
    if seen is None or seen.start_time != other.start_time or seen.state not in "ZX" or seen.threads > 1:
        return False
    try:
        threads = [entry.name for entry in Path(f"/proc/{other.pid}/task").iterdir()]
    except OSError:
        return False
    return threads == [str(other.pid)]


# ---------------------------------------------------------------------------------------------------------------------
# The kernel timer


class _SigEvent(ctypes.Structure):
    # struct sigevent of 64-bit Linux: 64 bytes, of which SIGEV_SIGNAL reads these three
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_int * 12),
    )


class _TimerSpec(ctypes.Structure):
    # struct itimerspec of 64-bit Linux
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1


@functools.cache
def _libc() -> Any:
    """The C library with the timer calls typed, or None where they do not exist."""
    # The structures above are those of 64-bit Linux
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    # PyDLL keeps the interpreter lock: these calls never block, and to give the lock away and win it back can take
    # several milliseconds beside busy threads.
    for name in (None, "librt.so.1"):  # glibc before 2.34 has them in librt
        try:
            lib = ctypes.PyDLL(name, use_errno=True)
            lib.timer_create.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
            lib.timer_settime.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
            lib.timer_delete.argtypes = [ctypes.c_void_p]
        except (OSError, AttributeError):
            continue
        return lib
    return None


def _failed(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


def _create_timer() -> ctypes.c_void_p:
    lib = _libc()
    if lib is None:
        raise OSError("this platform has no CLOCK_BOOTTIME timers")
    event = _SigEvent(None, signal.SIGKILL, _SIGEV_SIGNAL)
    timer = ctypes.c_void_p()  # kept as an object: the kernel's first timer has the id 0, which as a value reads None
    if lib.timer_create(CLOCK, ctypes.byref(event), ctypes.byref(timer)):
        raise _failed("timer_create")
    return timer


@functools.cache
def _platform_has_timer() -> bool:
    """Ask the kernel itself: sandboxes (gVisor, seccomp profiles) may lack what the C library offers."""
    try:
        timer = _create_timer()
    except OSError:
        return False
    return bool(_libc().timer_delete(timer) == 0)


class Watchdog:
    """Kills this process at the local deadline while the code of any submission runs (R16). Thread-safe.

    The order is: `enter()` (arms), `check()` (is there time?), the call, `leave()` once the code has *ended*. A process
    that is stopped anywhere between them is killed at the deadline, before its next instruction.

    It kills the whole process, neighbours included; their submissions become ambiguous like those of any crash.

    Attributes:
        enabled: as asked for. Disabled, it only counts and compares with the clock.
        available: whether the kernel can do it here. False off Linux, in a forked child, and for **PID 1**: the kernel
            ignores a timer's SIGKILL for the init of a PID namespace, which a container's first process is. Run such a
            container with an init (`docker run --init`), or under `semel.supervise`, whose workers are not PID 1.
        active: enabled and available. Submissions made without it are to be recorded unfenced.
        armed: whether the timer is set now.
        voided: True in a forked child. Timers are not inherited, and the session stays with the parent, so a child
            holds nothing: `check()` is False for ever, `fenced()` True.
        running: how many submissions' codes have entered and not left.
        deadline: CLOCK_BOOTTIME seconds; -inf before the first `extend`.
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.available = os.getpid() != 1 and _platform_has_timer()
        self.active = self.enabled and self.available
        self.armed = False
        self.voided = False
        self.deadline = -math.inf
        self.running = 0
        self._pid = os.getpid()
        # Reentrant, since a signal's handler may run between any two lines and call in here
        self._lock = threading.RLock()
        self._timer: ctypes.c_void_p | None = None
        # `armed` is True only while the timer is surely set, `_maybe_set` whenever it may be. They differ only if an
        # exception (Ctrl-C) comes between a system call and the line after it; each is then wrong on the safe side.
        self._maybe_set = False
        # Built once: half of what arming costs would otherwise be spent on making these
        self._on = _TimerSpec()
        self._on_ref = ctypes.byref(self._on)
        self._off_ref = ctypes.byref(_TimerSpec())
        self._settime: Any = _libc().timer_settime if self.active else None
        _watchdogs.add(self)

    def extend(self, deadline: float) -> None:
        """Set the local deadline, in CLOCK_BOOTTIME seconds; call it at each acknowledged beat.

        An earlier one than before is obeyed; one already past kills at once if armed. Raises ValueError unless finite,
        OSError if the kernel refuses.
        """
        if not math.isfinite(deadline):
            raise ValueError(f"a deadline must be a finite number of seconds, not {deadline!r}")
        with self._lock:
            self.deadline = deadline
            if self._maybe_set:
                self._arm()

    def enter(self) -> None:
        """A submission's code is about to run; the first one arms the timer. Kills at once if the deadline is past.

        Raises Misuse before the first `extend`, OSError if the kernel refuses a timer (RLIMIT_SIGPENDING). Then nothing
        was counted: make no call, and do not `leave`.
        """
        with self._lock:
            # Asked of the timer, not of the count, and counted last: cut short anywhere, it may leave a process armed
            # without need, but never lets a submission run unarmed.
            if self.active and not self.armed:
                if self.deadline == -math.inf:
                    raise Misuse("the watchdog has no deadline yet: extend() it at an acknowledged beat, then enter()")
                self._arm()
            self.running += 1

    def leave(self) -> None:
        """A submission's code has ended; the last one disarms. Raises Misuse if none is running."""
        with self._lock:
            if self.running == 0 and not self.voided:
                # One leave too many would take the cover from somebody else's running code
                raise Misuse("Watchdog.leave() without its enter(): call it once for each enter() that returned")
            self.running -= 1
            if self.running == 0 and self.armed:
                self._disarm()

    def check(self) -> bool:
        """True if this process may still act: the deadline is ahead. The last thing to ask before the call."""
        return boottime() < self.deadline and not self.voided and os.getpid() == self._pid

    def fenced(self, margin: float = 0.0) -> bool:
        """True if the deadline is past, or nearer than `margin` seconds."""
        return self.voided or boottime() >= self.deadline - margin

    def close(self) -> None:
        """Give the timer back to the kernel. Raises Misuse while a submission's code runs."""
        with self._lock:
            if self.running and not self.voided:
                raise Misuse(f"{self.running} submissions are still running: close the watchdog after they have ended")
            self.armed = self._maybe_set = False
            timer, self._timer = self._timer, None
            if timer is not None and not self.voided:
                _libc().timer_delete(timer)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = _create_timer()
        # Rounded down. Zero would disarm, so whatever is earlier means the first nanosecond; 4e9 s is beyond any uptime
        # and still fits the kernel's nanoseconds.
        nanoseconds = max(1, int(min(self.deadline, 4e9) * 1e9))
        self._on.value_s, self._on.value_ns = divmod(nanoseconds, 1_000_000_000)
        self._maybe_set = True
        if self._settime(self._timer, _TIMER_ABSTIME, self._on_ref, None):
            raise _failed("timer_settime")
        self.armed = True

    def _disarm(self) -> None:
        self.armed = False
        if self._settime(self._timer, 0, self._off_ref, None):
            raise _failed("timer_settime")
        self._maybe_set = False

    def _void(self) -> None:
        """In a forked child. The lock is new, because a thread that is not here any more may have held the old one."""
        self._lock = threading.RLock()
        self.voided = True
        self.available = self.active = self.armed = self._maybe_set = False


_watchdogs: weakref.WeakSet[Watchdog] = weakref.WeakSet()


def _void_all() -> None:
    for watchdog in list(_watchdogs):
        watchdog._void()


os.register_at_fork(after_in_child=_void_all)


# ---------------------------------------------------------------------------------------------------------------------
# Children


class _Watch:
    """One `with watching_children(...)`: told once, before the first child."""

    __slots__ = ("callback", "lock", "outer", "telling", "told")

    def __init__(self, callback: Callable[[str], None], outer: _Watch | None) -> None:
        self.callback = callback
        self.outer = outer
        self.lock = threading.RLock()
        self.telling = False
        self.told = False

    def tell(self, event: str) -> None:
        if self.outer is not None:
            self.outer.tell(event)
        if self.told:
            return
        with self.lock:  # a second thread waits here: its child too must come after the callback has returned
            if self.told or self.telling:  # telling: the callback itself makes a child
                return
            self.telling = True
            try:
                self.callback(event)
            finally:
                self.telling = False
            self.told = True  # not if it raised: then there is no child yet, and the next try asks again


_watch: ContextVar[_Watch | None] = ContextVar("semel_watching_children", default=None)
_THREAD_WATCH = "_semel_watching_children"

_CHILD_EVENTS = frozenset(
    {
        "subprocess.Popen",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "os.exec",  # not a child, but the new program has lost the timer: exec deletes it
        "pty.spawn",
    }
)
_THREAD_EVENTS = frozenset({"_thread.start_new_thread", "_thread.start_joinable_thread"})
_ALL_EVENTS = _CHILD_EVENTS | _THREAD_EVENTS | {"socket.connect"}


def _current_watch() -> _Watch | None:
    watch = _watch.get()
    if watch is None:
        watch = getattr(threading.current_thread(), _THREAD_WATCH, None)
    return watch


def _on_audit(event: str, args: tuple[Any, ...]) -> None:
    """One of _ALL_EVENTS is about to happen; raising stops it."""
    if event in _CHILD_EVENTS:
        watch = _current_watch()
        if watch is not None:
            watch.tell(event)
    elif event in _THREAD_EVENTS:
        _mark_thread(args[0])
    elif _is_fork_server(args[1]):
        watch = _current_watch()
        if watch is not None:
            watch.tell("multiprocessing.forkserver")


def _mark_thread(function: object) -> None:
    """A thread starts with an empty context, and acts for whoever started it: the mark goes with it."""
    thread = getattr(function, "__self__", None)  # `function` is the new Thread's bound _bootstrap
    watch = _current_watch() if isinstance(thread, threading.Thread) else None
    if watch is not None:
        setattr(thread, _THREAD_WATCH, watch)


def _is_fork_server(address: object) -> bool:
    """With a fork server running, a process is made by connecting to its socket; nothing else of it shows here."""
    module = sys.modules.get("multiprocessing.forkserver")
    server = getattr(module, "_forkserver", None)
    known = getattr(server, "_forkserver_address", None)
    return known is not None and known == address


def _before_fork() -> None:
    """For C code that forks by itself but runs Python's fork handlers (uvloop). Noticed; it cannot be stopped here."""
    watch = _current_watch()
    if watch is not None:
        watch.tell("fork")


def _make_hook() -> Callable[[str, tuple[Any, ...]], None]:
    # Closed over, not global: hooks outlive the module's names when the interpreter shuts down
    events, handle = _ALL_EVENTS, _on_audit

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in events:
            handle(event, args)

    return hook


def _watch_fork_exec() -> None:
    """multiprocessing (spawn, forkserver, its tracker) calls `_posixsubprocess.fork_exec`, which audits nothing."""
    try:
        import _posixsubprocess
    except ImportError:
        return
    original = _posixsubprocess.fork_exec

    @functools.wraps(original)
    def fork_exec(*args: Any) -> int:
        watch = _current_watch()
        if watch is not None:
            watch.tell("fork_exec")
        return original(*args)

    setattr(_posixsubprocess, "fork_exec", fork_exec)  # noqa: B010  (its stub has no name that could be assigned to)


def _watch_thread_start() -> None:
    """Before 3.12, starting a thread audits nothing."""
    original = getattr(threading, "_start_new_thread", None)
    if sys.version_info >= (3, 12) or original is None:
        return

    @functools.wraps(original)
    def start_new_thread(function: object, *args: Any) -> Any:
        _mark_thread(function)
        return original(function, *args)

    setattr(threading, "_start_new_thread", start_new_thread)  # noqa: B010  (not in its stub)


@functools.cache
def _install() -> None:
    sys.addaudithook(_make_hook())
    os.register_at_fork(before=_before_fork)
    _watch_fork_exec()
    _watch_thread_start()


class watching_children:  # noqa: N801  (used as a statement)
    """`with watching_children(callback):` calls `callback(event)` before the code inside first makes a child process.

    "Inside" is the current context, every copy of it (tasks, `asyncio.to_thread`), and every `threading.Thread` started
    in it, even where they outlive the block: the callback must bear a late call. It runs once for each block, in the
    thread that is about to make the child, which waits for it; other threads inside wait as well. If it raises, there
    is no child (but see below), and the next try asks again. Blocks nest: the outer one is told first.

    `event` is an audit event (`subprocess.Popen`, `os.fork`, `os.forkpty`, `os.posix_spawn`, `os.system`, `os.exec`,
    `pty.spawn`), or `fork_exec` or `multiprocessing.forkserver` (multiprocessing), or `fork` (C code that runs Python's
    fork handlers, as uvloop does: told in time, but it cannot be stopped by raising).

    Not seen: C or Rust code that forks by itself without Python's handlers, `ctypes`, threads begun with the bare
    `_thread` module, a pool's thread that was started elsewhere and got the work without its context, and
    whatever an already running helper process is asked to do.
    """

    __slots__ = ("_callback", "_token")

    def __init__(self, callback: Callable[[str], None]) -> None:
        self._callback = callback
        self._token: Token[_Watch | None] | None = None

    def __enter__(self) -> None:
        _install()
        self._token = _watch.set(_Watch(self._callback, _current_watch()))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._token is not None:
            _watch.reset(self._token)
            self._token = None
