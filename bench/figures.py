"""The figures of one kind of store, each measured in processes of its own on a store of its own."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kit import Kit, child, cpu, do, memory, ready, serving, told, until
from work import EFFECTS, Work

CONCURRENT = (1, 10, 50, 200, 500)
PROCESSES = (1, 2, 4, 8)
BESIDE = 200  # tasks at a time, of all processes together
SESSIONS, IN_ONE = 200, 50


def effects_at_a_time(concurrency: int) -> str:
    """What the figure is called."""
    return f"effects, {concurrency} {'task' if concurrency == 1 else 'tasks'} at a time"


def rates(kit: Kit) -> None:
    """Effects at each concurrency, empty tasks, enqueues."""
    for concurrency in CONCURRENT:
        count = kit.n(300 if concurrency == 1 else 2000)
        throughput(kit, "five", count, concurrency, effects_at_a_time(concurrency), EFFECTS)
    throughput(kit, "empty", kit.n(5000), BESIDE, "empty tasks")
    n = kit.n(5000)
    with kit.store() as url:
        put = do("callers", url, n, 50)
    kit.note("enqueue, 50 callers", per_second=n / put["seconds"])
    with kit.store() as url:
        put = do("enqueue_many", url, "empty", n)
    kit.note("enqueue_many, 500 at once", per_second=n / put["seconds"])


def throughput(kit: Kit, kind: str, count: int, concurrency: int, figure: str, each: int = 1) -> None:
    """Tasks that wait, and one worker process: so many a second, and what each cost."""
    with kit.store() as url:
        put = do("enqueue", url, kind, count)
        server = kit.server(url)
        ran = do("worker", url, kind, count, concurrency)
        n = count * each
        assert ran["ran"] == count, f"{figure}: {ran['ran']} of {count} ran"
        kit.note(figure, per_second=n / ran["seconds"], cpu_ms=1000 * ran["cpu"] / n, rss=ran["rss"])
        if server is not None:
            kit.note(figure, trips=ran["trips"] / n or None, **server.since(n))
    if kind == "empty":
        kit.note("enqueue, 500 at once", per_second=count / put["seconds"])


def where_it_goes(kit: Kit) -> None:
    """Of one more run with many tasks at a time: CPU of each thread for an effect, and the shares of the files."""
    count = kit.n(2000)
    with kit.store() as url:
        do("enqueue", url, "five", count)
        ran = do("sampled", url, BESIDE)
    n = ran["ran"] * EFFECTS
    threads = {name: 1000 * seconds / n for name, seconds in ran["threads"].items() if seconds}
    kit.note("where the time goes", threads=dict(sorted(threads.items(), key=lambda one: -one[1])), files=ran["files"])


def latency(kit: Kit) -> None:
    """An idle system: from the call of enqueue to the start of the handler."""
    n = kit.n(200)
    with kit.store() as url:
        do("enqueue", url, "timed", 0)  # the schema is there
        process = child("serve", url, 100)
        ready(process)
        time.sleep(2.0)
        do("paced", url, n, 0.05)
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        _quantiles(kit, "latency, across processes", told(process)["delays"], n)
    with kit.store() as url:
        _quantiles(kit, "latency, in one process", do("alone", url, n, 0.05)["delays"], n)


def _quantiles(kit: Kit, figure: str, seconds: list[float], n: int) -> None:
    assert len(seconds) == n, f"{figure}: {len(seconds)} of {n} began"
    cuts = [round(1000 * cut, 3) for cut in statistics.quantiles(seconds, n=100, method="inclusive")]
    kit.note(figure, p50_ms=cuts[49], p99_ms=cuts[98], cuts_ms=cuts)


# --- many tasks in one worker, and who takes them over ---


def takeover(kit: Kit) -> None:
    """A worker with 1,000 running tasks is killed; how long until another one on this host runs them all. Its memory."""
    n = kit.n(1000)
    with _two_workers(kit, n) as (has, other, running):
        kit.note("worker with 1,000 running tasks", rss=memory(has), tasks=n)
        began = time.monotonic()
        os.kill(has, signal.SIGKILL)
        until(lambda: running(other))
        kit.note("takeover, same host", seconds=time.monotonic() - began, tasks=n)


def takeover_from_afar(kit: Kit) -> None:
    """The same, from a worker that is stopped and not dead: as one on another machine, whose end nobody here can prove."""
    n = kit.n(1000)
    with _two_workers(kit, n) as (has, other, running):
        began = time.monotonic()
        os.kill(has, signal.SIGSTOP)
        until(lambda: running(other))
        kit.note("takeover, another host", seconds=time.monotonic() - began, tasks=n)


@contextmanager
def _two_workers(kit: Kit, n: int) -> Iterator[tuple[int, int, Callable[[int], bool]]]:
    """The pid of one that runs n tasks, of one that runs none, and how to ask whether one runs all of them."""
    with kit.store() as url:
        do("enqueue", url, "long", n)
        work = Work(url)
        store = work.app.runtime.desk.store

        def running(worker: int) -> bool:
            held = {s.pid: s.id for s in store.sessions() if not s.fenced}
            return worker in held and len(store.held(held[worker])) == n

        try:
            with serving("serve", url, n) as first:
                until(lambda: running(first.pid))
                with serving("serve", url, n) as second:
                    until(lambda: second.pid in {s.pid for s in store.sessions()})
                    time.sleep(2.0)
                    yield first.pid, second.pid, running
        finally:
            work.app.close()


def idle(kit: Kit) -> None:
    """A worker with nothing to do: CPU, memory, and what the server sees."""
    seconds = 20.0 if kit.scale == 1 else 6.0
    with kit.store() as url:
        do("enqueue", url, "empty", 0)
        with serving("serve", url, 100) as process:
            time.sleep(5.0)
            server, before = kit.server(url), cpu(process.pid)
            time.sleep(seconds)
            kit.note("idle worker", cpu_percent=100 * (cpu(process.pid) - before) / seconds, rss=memory(process.pid))
            if server is not None:
                seen = server.since()
                names = ("commits", "statements", "besides_beats")
                kit.note("idle worker", **{f"{n}_per_second": seen[n] / (seconds + 1.2) for n in names if n in seen})
                kit.note("idle worker", asks=server.asked(seconds + 1.2))


def steps(kit: Kit) -> None:
    """One task of 10,000 steps: does a step cost more at the end?"""
    n = kit.n(10_000)
    with kit.store() as url:
        ran = do("steps", url, n)
    first, *_, last = ran["parts"]
    kit.note(
        "a task of 10,000 steps", steps=n, per_second=n / sum(ran["parts"]), last_to_first=first / last,
        read_again_seconds=ran["again"], rss=ran["rss"],
    )  # fmt: skip


# --- many processes ---


def processes(kit: Kit) -> None:
    """The same work, by several worker processes on one queue. It falls due when all have come in."""
    for many in PROCESSES if kit.scale == 1 else PROCESSES[::2]:
        count = kit.n(2000)
        with kit.store() as url:
            do("enqueue", url, "five", count, 0, 500, 3 + many if kit.dialect == "sqlite" else 6 + 1.5 * many)
            server = kit.server(url)
            workers = [child("worker", url, "five", count, BESIDE // many) for _ in range(many)]
            ran = [one for worker in workers if (one := told(worker))["ran"]]
            assert sum(one["ran"] for one in ran) == count, "some ran twice, or never"
            seconds = max(one["ended"] for one in ran) - min(one["began"] for one in ran)
            n = count * EFFECTS
            figure = f"effects, {many} worker {'process' if many == 1 else 'processes'}"
            kit.note(figure, per_second=n / seconds, cpu_ms=1000 * sum(one["cpu"] for one in ran) / n, took_part=len(ran))
            if server is not None:
                kit.note(figure, **server.since(n))


def beating(kit: Kit) -> None:
    """200 sessions that beat: what they ask of the server, and what is left for a worker. None may be fenced."""
    many, seconds = kit.n(SESSIONS), 10.0 if kit.scale == 1 else 5.0
    count = kit.n(2000)
    with kit.store() as url:
        do("enqueue", url, "five", 2 * count)
        crowd = [child("sessions", url, min(IN_ONE, many - start)) for start in range(0, many, IN_ONE)]
        for process in crowd:
            ready(process)
        time.sleep(5.0)
        server = kit.server(url)
        time.sleep(seconds)
        seen = server.since() if server is not None else {}
        with_them = do("worker", url, "five", count, BESIDE)
        fenced = sum(told(process)["fenced"] for process in crowd)
        do("enqueue", url, "five", count, 2 * count)
        without = do("worker", url, "five", count, BESIDE)
    a_second = {name: seen[name] / (seconds + 1.2) for name in ("statements", "commits") if name in seen}
    kit.note(
        "200 sessions beat", sessions=many, fenced=fenced, **{f"{name}_per_second": n for name, n in a_second.items()},
        beside_them=(with_them["ran"] / with_them["seconds"]) / (without["ran"] / without["seconds"]),
    )  # fmt: skip
