"""`semel audit`: what its commands say. What is checked, and how, is in the engine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from semel.cli import output as out
from semel.cli import reach
from semel.cli.verify import wrongs
from semel.engine import export, heads
from semel.engine.ledger import Desk
from semel.errors import Misuse
from semel.model import Json


def now_ms() -> int:
    """Of this machine's clock: what is written here is for operators, and decides nothing."""
    return int(time.time() * 1000)


def asked_of(desk: Desk, tenant: str | None, task: str | None, since: int | None, until: int | None) -> export.Asked:
    """What is to be exported. Raises `Misuse`."""
    if since is not None and until is not None and since >= until:
        raise Misuse("--since is not before --until, so nothing lies between them; write them the other way round")
    if task is None:
        return export.Asked(tenant, None, since, until)
    found = reach.find(desk.store, task, tenant or "default", among=("task",))
    return export.Asked(found.tenant, found.id, since, until)


def exported(desk: Desk, to: Path, asked: export.Asked) -> tuple[int, int]:
    """Write it: to a file, or (-) to standard output."""
    if str(to) == "-":
        return export.write(desk.store, sys.stdout.buffer, asked, now_ms())
    return export.export(desk.store, to, asked, now_ms())


# --- saying it --------------------------------------------------------------------------------------------------------


def checked_data(found: export.Checked) -> dict[str, Json]:
    """An export's check, for programs."""
    return {
        "whole": not found.wrong, "streams": found.streams, "rows": found.rows, "heads": found.heads, "header": found.header,
        "note": "; ".join(found.notes), "wrong": [wrong._asdict() for wrong in found.wrong],
    }  # fmt: skip


def show_checked(path: Path, found: export.Checked) -> None:
    """For people."""
    if found.wrong and not (found.rows or found.streams or found.header) and {one.what for one in found.wrong} == {"changed"}:
        out.verdict(f"BROKEN  {path.name} holds nothing that semel has exported: is it the right file?", "bad")
        return
    checked = f"{out.count(found.rows, 'row')} in {out.count(found.streams, 'stream')}"
    if not found.wrong:
        signed = f", and {out.count(found.heads, 'signed head')} agree" if found.heads else ""
        out.verdict(f"WHOLE  Every chain in {path.name} is intact: {checked}{signed}.", "good")
    else:
        out.verdict(f"BROKEN  {out.count(len(found.wrong), 'thing')} wrong in {path.name}, of {checked}.", "bad")
    wrongs(found.wrong)
    for note in found.notes:
        out.say(f"Note: {note}.")


def show_signed(to: Path, streams: int, rows: int, signed: bool) -> None:
    """What was signed, and what to do with it."""
    out.say(f"{to} says where {out.count(streams, 'stream')} stand, of {out.count(rows, 'row')}.")
    if not signed:
        out.say("It is not signed: it proves as much as the place in which it is kept.")
    out.say("Keep it where whoever writes to the store cannot write. Later: semel audit verify --heads FILE --public-key FILE")


def heads_of(file: Path | None, public: Path | None) -> heads.Signed | None:
    """The heads to compare with. Raises `Misuse`."""
    if file is None:
        if public is not None:
            raise Misuse("--public-key goes with --heads: it says who has signed them; write --heads FILE --public-key FILE")
        return None
    return heads.signed_at(file, public)
