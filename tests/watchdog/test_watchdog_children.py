"""R16: code that is about to make a child says so first."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from semel.watchdog import watching_children


class Stop(Exception):
    pass


def refuse(event: str) -> None:
    raise Stop(event)


def a_fork() -> None:
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def a_forkpty() -> None:
    pid, terminal = os.forkpty()
    if pid == 0:
        os._exit(0)
    os.close(terminal)
    os.waitpid(pid, 0)


def a_spawn() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)


def a_process(method: str) -> None:
    process = multiprocessing.get_context(method).Process(target=os.getpid)  # type: ignore[attr-defined]
    process.start()
    process.join()


MAKERS: dict[str, tuple[Callable[[], object], str]] = {
    "subprocess.run": (lambda: subprocess.run(["true"], check=True), "subprocess.Popen"),
    "os.popen": (lambda: os.popen("true").close(), "subprocess.Popen"),
    "os.system": (lambda: os.system("true"), "os.system"),
    "os.fork": (a_fork, "os.fork"),
    "os.forkpty": (a_forkpty, "os.forkpty"),
    "os.posix_spawn": (a_spawn, "os.posix_spawn"),
    "os.spawnv": (lambda: os.spawnv(os.P_WAIT, "/bin/true", ["true"]), "os.fork"),
    "pty.spawn": (lambda: pty.spawn(["true"]), "pty.spawn"),
    "os.execv": (lambda: os.execv("/bin/false", ["false"]), "os.exec"),
    "multiprocessing fork": (lambda: a_process("fork"), "os.fork"),
    "multiprocessing spawn": (lambda: a_process("spawn"), "fork_exec"),
}
STAYS = [name for name in MAKERS if name not in {"os.execv", "pty.spawn", "multiprocessing spawn"}]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forks beside pytest's threads
@pytest.mark.parametrize("name", STAYS)
def test_told_once_before(name: str) -> None:
    make, event = MAKERS[name]
    events: list[str] = []
    with watching_children(events.append):
        make()
        make()
    assert events == [event]
    make()
    assert events == [event]  # not outside


@pytest.mark.parametrize("name", list(MAKERS))
def test_raising_prevents_the_child(name: str) -> None:
    make, event = MAKERS[name]
    if "spawn" in name:
        multiprocessing.resource_tracker.ensure_running()  # else it is the first child of a process so started
    before = children()
    with watching_children(refuse):
        for _ in range(2):  # and asks again, since there is no child yet
            with pytest.raises(Stop, match=event):
                make()
    assert children() <= before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def test_a_fork_server_makes_children_on_request() -> None:
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.set_forkserver_preload([])
    multiprocessing.forkserver.ensure_running()
    try:
        with watching_children(refuse), pytest.raises(Stop, match="forkserver"):
            a_process("forkserver")
    finally:
        multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


def test_nothing_else_is_a_child() -> None:
    with watching_children(refuse):
        list(Path("/").iterdir())
        compile("1", "x", "eval")
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()


def test_asyncio_subprocess_in_the_task_that_makes_it() -> None:
    events: list[str] = []

    async def watched(ready: asyncio.Event) -> int:
        with watching_children(events.append):
            await ready.wait()
            process = await asyncio.create_subprocess_exec("true")
            return await process.wait()

    async def unwatched(ready: asyncio.Event) -> int:
        process = await asyncio.create_subprocess_exec("true")
        code = await process.wait()
        assert events == []
        ready.set()
        return code

    async def main() -> None:
        ready = asyncio.Event()
        assert await asyncio.gather(watched(ready), unwatched(ready)) == [0, 0]  # type: ignore[comparison-overlap]

    asyncio.run(main())
    assert events == ["subprocess.Popen"]


def test_asyncio_refused() -> None:
    async def main() -> None:
        with watching_children(refuse):
            with pytest.raises(Stop):
                await asyncio.create_subprocess_exec("true")
            with pytest.raises(Stop):
                await asyncio.create_subprocess_shell("true")
            with pytest.raises(Stop):
                await asyncio.to_thread(subprocess.run, ["true"])

            async def task() -> None:
                with pytest.raises(Stop):
                    await asyncio.create_subprocess_exec("true")

            await asyncio.create_task(task())

    asyncio.run(main())


def test_threads_with_a_copied_context_and_threads_begun_inside() -> None:
    def try_it() -> bool:
        try:
            subprocess.run(["true"], check=True)
        except Stop:
            return True
        return False

    with ThreadPoolExecutor(1) as early:
        early.submit(int).result()  # its thread exists now
        with watching_children(refuse):
            assert early.submit(contextvars.copy_context().run, try_it).result()
            assert not early.submit(try_it).result()  # the stated limit: a thread from before, without the context
            with ThreadPoolExecutor(1) as late:
                assert late.submit(try_it).result()
                assert late.submit(lambda: ThreadPoolExecutor(1).submit(try_it).result()).result()  # and its threads
        assert not early.submit(try_it).result()


def test_other_threads_wait_for_the_callback() -> None:
    order: list[str] = []
    lock = threading.Lock()

    def slow(event: str) -> None:
        order.append("told")
        time.sleep(0.2)
        order.append("recorded")

    def make() -> None:
        subprocess.run(["true"], check=True)
        with lock:
            order.append("child")

    with watching_children(slow):
        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert order == ["told", "recorded", *["child"] * 4]


def test_a_callback_may_make_a_child() -> None:
    events: list[str] = []

    def callback(event: str) -> None:
        events.append(event)
        subprocess.run(["true"], check=True)

    with watching_children(callback):
        subprocess.run(["true"], check=True)
    assert events == ["subprocess.Popen"]


def test_blocks_nest_and_end() -> None:
    events: list[str] = []
    with watching_children(lambda event: events.append("outer")):
        with watching_children(lambda event: events.append("inner")):
            subprocess.run(["true"], check=True)
        with watching_children(lambda event: events.append("second")):
            subprocess.run(["true"], check=True)
        subprocess.run(["true"], check=True)
    assert events == ["outer", "inner", "second"]


def test_c_code_that_runs_the_fork_handlers_is_noticed() -> None:
    """As uvloop does: no audit event, but PyOS_BeforeFork."""
    import ctypes

    events: list[str] = []
    with watching_children(events.append):
        ctypes.pythonapi.PyOS_BeforeFork()
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    assert events == ["fork"]


@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger makes every line slow")
def test_an_idle_hook_is_cheap() -> None:
    with watching_children(refuse):
        pass
    started = time.perf_counter()
    for _ in range(20_000):
        sys.audit("semel.test", 1)
    assert (time.perf_counter() - started) / 20_000 < 10e-6
