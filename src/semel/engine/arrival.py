"""Arriving at a store: what a process makes sure of before it claims anything (R19, R20).

1. The store has not gone back: it holds what the witness saw. If it does not, a new epoch begins, or a person must say so.
2. Without a witness, somebody who has one is here, or nobody is: a beat that advances, or a TTL in which none does.
3. In a new epoch, the largest permitted TTL has been watched: no session of before can act any more.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

import uuid_utils

from semel.engine import own
from semel.engine.ledger import Desk
from semel.errors import StoreUnavailable
from semel.machine import epochs
from semel.machine import journal as j
from semel.model import Refusal
from semel.store.contract import SessionRow, StoreInfo
from semel.store.witness import Kept, Witness
from semel.watchdog import Identity, proof_of_death

log = logging.getLogger("semel")


class NotYet(StoreUnavailable):
    """This process may claim nothing yet: it watches, and must look again within half a TTL."""


@dataclass(slots=True)
class Silence:
    """For how long nobody was seen to beat, on our own clock. nonces: the beats as they stood."""

    nonces: dict[str, str]
    seconds: float
    last_look: float


def land(desk: Desk, command: epochs.Command, actor: str) -> epochs.Epoch | Refusal:
    """Decide and land a command on the store's epoch, waiting; the epoch after it, or the machine's no."""
    return own.land(desk, epochs.STREAM, epochs.fold, lambda state: epochs.decide(state, command), actor)


def begin(
    desk: Desk, info: StoreInfo, witnessed: int, until: int | None, why: str, actor: str, above: int = 0
) -> epochs.Epoch | Refusal:
    """Begin a new epoch of a store that went back.

    until: when the last that was witnessed was acknowledged. What is dated later was written after the store went back, and
    says nothing of when it went back to. None: nobody knows; then it may have forgotten all that it ever did.
    """
    rows = desk.store.rows(epochs.TENANT, epochs.STREAM)
    first = next((event.before for row in rows if isinstance(event := j.event_of(row), j.EpochBegan)), info.epoch)
    held = 0 if until is None else desk.store.highest_at(until)
    since = max(held, first * 1000)  # nothing was sent before the store was made
    command = epochs.Begin(
        info.epoch, witnessed, desk.clock.raw_ms() // 1000, str(uuid_utils.uuid4()), since, why, above
    )  # fmt: skip
    return land(desk, command, actor)


class Asked(NamedTuple):
    """Whether something that was witnessed in this epoch is held; what is not, and when the witness last saw something."""

    held: bool
    missing: str
    until: int = 0


def asked(witness: Witness, desk: Desk, kept: Kept | None, info: StoreInfo) -> Asked:
    """Ask the store whether it holds what this process saw, and what the file says."""
    held = False
    for seen in sorted(
        (witness.seen, *(kept.all if kept else ())), key=lambda one: one.at
    ):  # the first that is gone is the measure
        if seen.epoch < info.epoch:
            continue  # of before this epoch: somebody has noticed already
        if seen.epoch > info.epoch:
            return Asked(False, f"epoch {seen.epoch}", seen.at)
        if missing := desk.store.missing(seen):
            return Asked(False, missing, seen.at)
        held = held or seen is not witness.seen or witness.trusted
    return Asked(held, "")


class Arrival:
    """One process's arrival. ttl: seconds, of the session that it wants to open."""

    def __init__(self, desk: Desk, witness: Witness, *, ttl: float) -> None:
        self._desk, self._witness, self._ttl = desk, witness, ttl
        self._silence: Silence | None = None
        self._epoch, self._epoch_since = -1, 0.0
        self._largest_ms = 0  # the largest TTL that any session may have had, as far as is known
        self._sure = False  # that the store did not go back, or is in an epoch that was begun for it

    def look(self) -> None:
        """Return if this process may claim. Raises `NotYet` while it must watch, `StoreUnavailable` if a person must act."""
        info = self._desk.store.reread()
        now = self._desk.clock.boot()
        if info.epoch != self._epoch:
            self._epoch, self._epoch_since, self._silence = info.epoch, now, None
            self._witness.begin(info)
        self._trust(info, now)
        info = self._desk.store.info
        state = self._desk.standing.read()
        if not state.watched:
            left = max(info.largest_ttl_ms, self._largest_ms) / 1000 - (now - self._epoch_since)
            if left > 0:
                raise NotYet(
                    f"the store went back and began epoch {info.epoch}: what was under way before may still act for {left:.0f} s"
                )
            if info.tenant is None:  # a tenant's role may not write the store's own stream: each such process watches by itself
                land(self._desk, epochs.Watched(info.epoch), "arrival")
                self._desk.standing.read()
        self._witness.arrived = True
        self._witness.save()

    # --- has it gone back? ---

    def _trust(self, info: StoreInfo, now: float) -> None:
        kept = self._witness.load()
        _, missing, until = asked(self._witness, self._desk, kept, info)
        if kept is not None:
            self._remember(info, kept)
        if missing:
            self._went_back(info, kept, missing, until)
            raise NotYet(f"the store went back (it does not hold {missing}): a new epoch begins")
        knows = self._sure or self._witness.arrived or self._desk.store.created
        if not (knows or (kept is not None and self._is_newest(info, kept))):
            self._watch(info, now, kept)
        self._sure = self._witness.trusted = True

    def _remember(self, info: StoreInfo, kept: Kept) -> None:
        """What a restored store may have forgotten of itself: how long a lease may be, and that nothing stopped some process."""
        self._largest_ms = max(self._largest_ms, kept.largest_ttl_ms)
        if info.tenant is None and kept.largest_ttl_ms > info.largest_ttl_ms:
            self._desk.store.permit_ttl(kept.largest_ttl_ms)
        if info.tenant is None and kept.unfenced and not info.unfenced:
            self._desk.store.note_unfenced()

    def _is_newest(self, info: StoreInfo, kept: Kept) -> bool:
        """Whether nobody can know more than the file: all processes of a SQLite store write it; of a database, one that lives
        elsewhere may have seen what this machine has not. One that holds nothing says nothing of a store that is in use."""
        if kept.seen.epoch != info.epoch:
            return False
        if kept.seen.row is None and kept.seen.beat is None and self._desk.store.streams(("", ""), 1):
            return False
        return info.dialect == "sqlite" or not self._others(info, kept)

    def _others(self, info: StoreInfo, kept: Kept | None) -> list[SessionRow]:
        own, known = Identity.own(), kept.seen.beat[0] if kept and kept.seen.beat else ""
        return [
            row for row in self._desk.store.sessions()
            if row.epoch == info.epoch and row.id != known
            and not proof_of_death(Identity(row.boot_id, row.pid_ns, row.time_ns, row.pid, row.start_time, row.host), own)
        ]  # fmt: skip

    def _went_back(self, info: StoreInfo, kept: Kept | None, missing: str, until: int) -> None:
        """R20: begin a new epoch by ourselves, or leave it to a person who can see more."""
        place = kept.place if kept else info.place
        doubt = ""
        if place != info.place:
            doubt = f"it was last seen at {place}, and that one may still be at work"
        elif "asynchronous" in (info.durability, kept.durability if kept else ""):
            doubt = "it has, or had, an asynchronous standby: the old primary may still be at work"
        elif info.tenant is not None:
            doubt = "and the role of one tenant cannot begin a new epoch for all"
        if doubt:
            raise StoreUnavailable(
                f"the store {info.place} does not hold {missing}, which it had acknowledged: it was restored, or a standby took "
                f"over without it; {doubt}. When it is down for good, say so: semel restore --old-is-down --by YOU --reason WHY"
            )
        witnessed = max(self._witness.seen.epoch, kept.seen.epoch if kept else 0)
        begun = begin(self._desk, info, witnessed, until, f"the store does not hold {missing}", "arrival")
        if not isinstance(begun, Refusal):
            self._sure = self._witness.trusted = True  # it was we who knew
            log.error("semel: the store went back: it does not hold %s; epoch %d begins", missing, begun.epoch)

    # --- nobody here knows ---

    def _watch(self, info: StoreInfo, now: float, kept: Kept | None) -> None:
        rows = self._others(info, None)
        nonces = {row.id: row.nonce for row in rows}
        quiet = self._silence
        if quiet is None or now - quiet.last_look > self._ttl / 2:  # a time in which we did not look is not watching
            self._silence = quiet = Silence(nonces, 0.0, now)
        elif any(quiet.nonces.get(id) != nonce for id, nonce in nonces.items()):
            return  # one who has a witness beats, or has just come: whoever opens a session has arrived before
        quiet.seconds, quiet.last_look = quiet.seconds + now - quiet.last_look, now
        wanted = max([self._ttl, *(min(row.ttl_ms, info.largest_ttl_ms) / 1000 for row in rows)])
        if quiet.seconds < wanted:
            raise NotYet(
                f"this machine has not seen this store before, or not lately ({self._witness.path}): for {wanted:g} s it "
                f"watches whether somebody who has is at work ({wanted - quiet.seconds:.0f} s left)"
            )
        if kept is not None and kept.seen.epoch == info.epoch:
            return
        log.warning(
            "semel: nobody is at work who has seen this store before. If it was restored from a backup, that cannot be told from "
            "here: stop, and say so first: semel restore --old-is-down --by YOU --reason WHY"
        )
