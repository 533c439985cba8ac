"""What must stand in the database for all changes of a batch to land, and the one question whether it does.

Pure. The question is a statement that fails if the answer is no, so nothing that follows it in its transaction can be
committed: neither what a rival has moved, nor what a fenced session intends (R5).
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.machine.journal import GENESIS
from semel.store.batch import NOWHERE, Facts, SessionFacts, Stream
from semel.store.contract import Change, Guard, Head
from semel.store.pglink import Call, bytes_array, int_array, text_array


def expected(changes: Sequence[Change], claims: Sequence[Guard]) -> tuple[Facts, Call] | None:
    """The facts, and the question. None: they cannot be true all together."""
    guards = [*(change.guard for change in changes if change.guard), *claims]
    epochs = {guard.epoch for guard in guards}
    if len(epochs) > 1 or any(part.expect.seq == 0 and part.expect != NOWHERE for change in changes for part in change.parts):
        return None
    facts = Facts(epoch=max(epochs, default=0))
    for change in changes:
        for part in change.parts:
            facts.heads.setdefault((part.tenant, part.stream), part.expect)
    written = set(facts.heads)
    for change in changes:
        for tenant, stream, seq in change.checks:
            facts.heads.setdefault((tenant, stream), Head(seq, GENESIS))  # its seq alone counts
    for guard in guards:
        known = facts.sessions.get(guard.session)
        beat = max(guard.beat, known.beat if known else guard.beat)
        facts.sessions[guard.session] = SessionFacts(guard.epoch, beat, "", living=True)
    newest = {guard.session: guard.seen for guard in guards if guard.seen is not None}  # who holds it holds all before
    facts.held = {guard.seen: True for guard in guards if guard.seen is not None}
    return facts, ("as_expected", {**_heads(facts, written), **_sessions(facts), **_seen(sorted(newest.values()))})


def _heads(facts: Facts, written: set[Stream]) -> dict[str, str]:
    rows = [
        (*stream, head.seq, head.hash if head.seq and stream in written else None) for stream, head in sorted(facts.heads.items())
    ]
    tenants, streams, seqs, hashes = zip(*rows, strict=True) if rows else ((), (), (), ())
    return {
        "tenants": text_array(tenants), "streams": text_array(streams), "seqs": int_array(seqs), "hashes": bytes_array(hashes),
    }  # fmt: skip


def _sessions(facts: Facts) -> dict[str, object]:
    ids = sorted(facts.sessions)
    return {"ids": text_array(ids), "beats": int_array(facts.sessions[id].beat for id in ids), "epoch": facts.epoch}


def _seen(rows: Sequence[tuple[str, str, int, bytes]]) -> dict[str, str]:
    tenants, streams, seqs, hashes = zip(*rows, strict=True) if rows else ((), (), (), ())
    return {
        "seen_tenants": text_array(tenants), "seen_streams": text_array(streams), "seen_seqs": int_array(seqs),
        "seen_hashes": bytes_array(hashes),
    }  # fmt: skip
