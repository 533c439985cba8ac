"""`semel restore`: whether the store went back, and what a person says about it (R19, R20)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from semel.app import App
from semel.cli import output as out
from semel.cli import typed
from semel.cli.decide import who
from semel.cli.tell import person_of
from semel.engine import arrival
from semel.engine.ledger import Desk
from semel.engine.review import person
from semel.errors import Misuse, Refused
from semel.machine import epochs
from semel.machine import journal as j
from semel.machine.journal import Row
from semel.model import Json, Refusal

STATE = "semel restore"


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known. missing: what this machine's witness saw, and the store does not hold. epoch: the number, the first too."""

    epoch: int
    state: epochs.Epoch
    rows: tuple[Row, ...]
    missing: str
    witness: str
    witnessed: bool

    @property
    def began(self) -> Row | None:
        """The row that began this epoch; None: it is the first."""
        return next((row for row in reversed(self.rows) if row.kind == j.EpochBegan.kind), None)

    def last(self, kind: str) -> Row | None:
        """The last row of a kind since this epoch began."""
        began = self.began
        return next((r for r in reversed(self.rows) if r.kind == kind and began and r.seq > began.seq), None)


def look(app: App) -> Standing:
    """Read it."""
    runtime = app.runtime
    store, witness = runtime.desk.store, runtime.witness
    kept = witness.load()
    info = store.reread()
    missing = arrival.asked(witness, runtime.desk, kept, info).missing
    rows = tuple(store.rows(epochs.TENANT, epochs.STREAM))
    return Standing(info.epoch, epochs.fold(rows), rows, missing, str(witness.path or ""), kept is not None)


def moment_of(text: str | None) -> int | None:
    """A time, as milliseconds since the Unix epoch. Raises `Misuse`."""
    ms = typed.ms_of("--went-back-to", text)
    if ms is None:
        return None
    if ms > time.time() * 1000:
        raise Misuse(f"--went-back-to {out.clipped(str(text), 40)!r} is yet to come; write when the backup was made")
    return ms


def began_by_hand(app: App, by: str | None, reason: str, above: int | None, went_back_to: str | None) -> None:
    """A person says that the store was restored, or failed over, and that the old one is down for good."""
    said = moment_of(went_back_to)
    name = _named(by, reason)
    runtime = app.runtime
    desk, witness = runtime.desk, runtime.witness
    info, kept = desk.store.reread(), witness.load()
    if above is not None and not 0 <= above < epochs.HIGHEST:
        raise Misuse(f"--above {above} is no epoch; write the highest that was ever granted, at most {epochs.HIGHEST - 1}")
    witnessed = max(info.epoch, witness.seen.epoch, kept.seen.epoch if kept else 0)
    found = arrival.asked(witness, desk, kept, info)
    until = said if said is not None else found.until if found.missing else None
    _landed(arrival.begin(desk, info, witnessed, until, reason, name, above or 0))
    witness.begin(desk.store.reread())
    witness.trusted = True  # by a person's word
    witness.save()


def watched(app: App, said: Callable[[str], None]) -> None:
    """Watch here until claims may be given, which else a worker does. said: told what is being waited for, at each change."""
    runtime = app.runtime
    ttl = runtime.desk.store.info.largest_ttl_ms / 1000
    arriving, told = arrival.Arrival(runtime.desk, runtime.witness, ttl=ttl), ""
    while True:
        try:
            return arriving.look()
        except arrival.NotYet as why:
            words = str(why).partition(" for ")[0]
            if words != told:
                said(str(why))
            told = words
        time.sleep(min(1.0, ttl / 8))


def decided(app: App, command: epochs.Command, by: str | None, reason: str) -> None:
    """Close the window, or lift the doubt."""
    name = _named(by, reason)
    desk: Desk = app.runtime.desk
    _landed(arrival.land(desk, command, name))


def _named(by: str | None, reason: str) -> str:
    name = person(who(by))
    if not reason.strip():
        raise Misuse("it is on record for ever why: write --reason 'restored from the backup of Monday 03:00'")
    return name


def _landed(result: epochs.Epoch | Refusal) -> None:
    if isinstance(result, Refusal):
        raise Refused(result.code, result.message, result.result)


# --- saying it ------------------------------------------------------------------------------------------------------


def as_data(found: Standing) -> dict[str, Json]:
    """For programs."""
    state, began = found.state, found.began
    return {
        "epoch": found.epoch, "incarnation": state.incarnation, "began": began.at if began else None,
        "by": began.actor if began else None, "went_back_to": state.since if began else None, "doubt": state.doubtful,
        "window": "open" if state.window else "closed", "watched": state.watched, "missing": found.missing,
        "witness": found.witness if found.witnessed else None,
    }  # fmt: skip


def show(found: Standing) -> None:
    """For people."""
    if found.missing:
        out.verdict(f"WENT BACK  The store does not hold {found.missing}, which it had acknowledged.", "bad")
        out.say(
            "It was restored from a backup, or a standby took over without the last of it. Workers begin a new epoch by "
            "themselves where that is safe; else they wait until you say that the old one is down for good:"
        )
        out.say(f"  {STATE} --old-is-down --by YOU --reason WHY")
        return
    began = found.began
    if began is None:
        out.verdict(f"The store is in its first epoch ({found.epoch}): it never went back.", "good")
        if not found.witnessed:
            out.say(f"This machine has no witness of it yet ({found.witness}).")
        return
    event = j.event_of(began)
    assert isinstance(event, j.EpochBegan)
    out.verdict(f"Epoch {event.epoch} began at {out.moment(began.at, 0)}, by {person_of(began.actor)}.", "")
    out.indented(event.why, 12, first="  why")
    out.indented(f"to {out.moment(event.since, 0)}; what was done later it may have forgotten", 12, first="  went back")
    if not found.state.watched:
        out.indented(f"none yet: a worker, or {STATE} --watch, watches the largest lease first", 12, first="  claims")
    _doubt(found)


def _doubt(found: Standing) -> None:
    if not found.state.doubtful:
        lifted = found.last(j.DoubtLifted.kind)
        out.indented(f"lifted by {person_of(lifted.actor)}" if lifted else "none", 12, first="  doubt")
        return
    out.indented(
        "stands: an effect of a task from before is looked for before it is first sent again; what nobody can look up waits "
        "for a person", 12, first="  doubt",
    )  # fmt: skip
    closed = found.last(j.WindowClosed.kind)
    if closed is not None:
        out.indented(f"closed by {person_of(closed.actor)}: tasks that are accepted now are new", 12, first="  window")
    else:
        out.indented("open: a task that is accepted now may be an old one, and is in doubt too", 12, first="  window")
        out.say()
        out.say("When all that was lost has been enqueued again:")
        out.say(f"  {STATE} --close-window --by YOU --reason WHY")
    out.say()
    out.say("When nothing is to be looked for any more:")
    out.say(f"  {STATE} --lift-doubt --by YOU --reason WHY")
