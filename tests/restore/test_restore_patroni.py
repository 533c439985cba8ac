"""The distributed engine: Patroni, etcd and three PostgreSQL, whose machines are lost and whose agents freeze, under load."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clusters import Fixed
from patroni_trio import Trio
from restore_lab import RestoreLab, until
from test_restore_servers import Load, closing  # noqa: F401

import semel
from pgserver import known_here
from semel.store.postgres import Postgres

LOSSES = int(os.environ.get("SEMEL_PROOF_LOSSES", "10"))
FREEZES = int(os.environ.get("SEMEL_PROOF_FREEZES", "3"))


class Giving:
    """A thread that accepts tasks all the time; while the store is away it asks again."""

    def __init__(self, load: Load) -> None:
        self.load, self._over = load, threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._give, daemon=True)
        self._thread.start()

    def _give(self) -> None:
        last = time.monotonic()
        while not self._over.is_set():
            name = next(self.load.names)
            while True:
                try:
                    self.load.give_one(name)
                    break
                except semel.StoreUnavailable:
                    time.sleep(0.2)
            self.longest = max(self.longest, time.monotonic() - last)
            last = time.monotonic()
            self._over.wait(0.1)

    def end(self) -> None:
        self._over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.mark.proof
@pytest.mark.timeout(3000)
def test_machines_are_lost_and_agents_freeze_under_load(closing: ExitStack, tmp_path: Path) -> None:  # noqa: F811
    trio = Trio()
    closing.callback(trio.close)
    Postgres(trio.url).close()
    known_here(trio.url)
    lab = RestoreLab(tmp_path / "lab", Fixed(trio.url), CRASH_LEASE="60")  # type: ignore[arg-type]
    closing.callback(lab.close)
    for _ in range(4):
        lab.worker("keeper", script="run_supervisor.py")
    until("all have come", lambda: len(lab.sessions()) == 4)
    load = Load(lab)
    giving = Giving(load)
    for strike in ["lose"] * LOSSES + ["freeze"] * FREEZES:
        struck = trio.whole()
        done = len(lab.acts())
        until("work goes on", lambda done=done: len(lab.acts()) > done + 5, 90)  # type: ignore[misc]
        began = time.monotonic()
        getattr(trio, strike)(struck)
        trio.until("another leads", lambda struck=struck: trio.leader(struck) not in (None, struck), 120)  # type: ignore[misc]
        led = time.monotonic() - began
        if strike == "freeze":
            time.sleep(5)
            trio.thaw(struck)
        done = len(lab.acts())
        until("work goes on by itself", lambda done=done: len(lab.acts()) > done + 5, 120)  # type: ignore[misc]
        print(f"{strike} n{struck}: another leads after {led:.1f} s, work after {time.monotonic() - began:.1f} s", flush=True)
        if strike == "lose":
            trio.start(struck)
    giving.end()
    until("all have ended", lambda: calmly(load), 240)
    load.proved()
    load.no_intent_lost()
    assert not lab.has_begun(), "no false alarm"
    unknown = sum(bool(lab.events(ref, "lost")) for ref in load.refs.values())
    print(
        f"{len(load.refs)} tasks, {len(lab.acts())} acts, {unknown} were unknown for a while, longest wait {giving.longest:.1f} s"
    )


def calmly(load: Load) -> Any:
    """Whether all have ended; while the store is away, not yet."""
    try:
        return load.ended()
    except semel.StoreUnavailable:
        return False
