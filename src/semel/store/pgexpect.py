"""What must stand in the database for all changes of a batch to land, and the one question whether it does.

Pure. The question is a statement that fails if the answer is no, so nothing that follows it in its transaction can be
committed: neither what a rival has moved, nor what a fenced session intends (R5).
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.machine.journal import GENESIS
from semel.store.batch import NOWHERE, Facts, SessionFacts, Stream
from semel.store.contract import Change, Guard, Head, Part, is_birth
from semel.store.pglink import Call, bytes_array, int_array, text_array


def expected(changes: Sequence[Change], claims: Sequence[Guard]) -> tuple[Facts, list[Call]] | None:
    """The facts, and the question, if there is any. None: they cannot be true all together."""
    born, changes = _apart(changes)
    guards = [*(change.guard for change in changes if change.guard), *claims]
    epochs = {guard.epoch for guard in guards}
    if len(epochs) > 1 or any(part.expect.seq == 0 and part.expect != NOWHERE for change in changes for part in change.parts):
        return None
    facts = Facts(epoch=max(epochs, default=0))
    for change in changes:
        for part in change.parts:
            stream = (part.tenant, part.stream)
            if stream not in facts.heads and _is_birth(change, part):
                born.add(stream)
            elif stream not in born:  # what follows a birth follows the batch's own rows
                facts.heads.setdefault(stream, part.expect)
    written = set(facts.heads)
    for change in changes:
        for tenant, name, seq in change.checks:
            if (tenant, name) not in born:
                facts.heads.setdefault((tenant, name), Head(seq, GENESIS))  # its seq alone counts
    for guard in guards:
        known = facts.sessions.get(guard.session)
        beat = max(guard.beat, known.beat if known else guard.beat)
        facts.sessions[guard.session] = SessionFacts(guard.epoch, beat, "", living=True)
    newest = {guard.session: guard.seen for guard in guards if guard.seen is not None}  # who holds it holds all before
    facts.held = {guard.seen: True for guard in guards if guard.seen is not None}
    if not facts.heads and not guards:
        return facts, []
    return facts, [("as_expected", {**_heads(facts, written), **_sessions(facts), **_seen(sorted(newest.values()))})]


def _apart(changes: Sequence[Change]) -> tuple[set[Stream], list[Change]]:
    """The streams of births, and the other changes."""
    born: set[Stream] = set()
    others: list[Change] = []
    for change in changes:
        if is_birth(change):
            born.add((change.parts[0].tenant, change.parts[0].stream))
        else:
            others.append(change)
    return born, others


def _is_birth(change: Change, part: Part) -> bool:
    """Whether it begins the stream of the task that the change brings into being. Where that stands need not be asked: its key is
    inserted in the same transaction, and fails if it is taken; it names its task from the task's first row on, and is never
    removed. (An id that another key has already would meet the journal's primary key.)
    """
    create = change.create
    return create is not None and part.stream == create[3] and part.tenant == create[0] and part.expect == NOWHERE


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
