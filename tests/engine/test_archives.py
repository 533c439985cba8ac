"""What was signed and then pruned is proved by the exports of the prunes (R22), and by nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from semel.engine.audit import Report, _against
from semel.engine.heads import Archives, Pending, Signed, Walk
from semel.errors import Misuse
from semel.machine import journal as j
from semel.machine import tampering
from semel.machine.export import line_of
from semel.machine.journal import Row


def sealed(*events: j.Happened, after: tuple[Row, ...] = (), stream: str = "t1") -> tuple[Row, ...]:
    seq, previous = (after[-1].seq, after[-1].hash) if after else (0, j.GENESIS)
    return j.seal(events, tenant="acme", stream=stream, seq=seq, previous=previous, actor="a", token=0, at=1, id="x")


def tombstone(before: tuple[Row, ...]) -> Row:
    last = before[-1]
    body = json.dumps({"rows": last.seq, "hash": last.hash.hex(), "task": {}})
    bare = replace(last, seq=last.seq + 1, kind="pruned", body=body, event=None)
    return replace(bare, hash=tampering.written(bare, bare.seq, last.hash))


OLD = sealed(j.Enqueued("t1", "bill", "k", {}), j.Stepped("s", "draft", 1), j.Finished("done"))
STONE = tombstone(OLD)
AGAIN = (STONE, *sealed(j.Replayed("by ann"), j.Finished("done"), after=(STONE,)))
SECOND = tombstone(AGAIN)


def file_of(path: Path, *rows: Row) -> Path:
    path.write_text("".join(line_of(row) + "\n" for row in rows))
    return path


def pending(of: Row, start: Row = STONE) -> Pending:
    return Pending("acme", "t1", of.seq, of.hash, start.seq - 1, bytes.fromhex(json.loads(start.body)["hash"]))


def absent(one: Pending, *files: Path) -> tuple[list[Pending], list[str]]:
    archives = Archives([one])
    for file in files:
        archives.read(file)
    return archives.absent(), [text for _, _, text in archives.wrong]


def test_a_head_before_the_tombstone_is_proved_by_the_export(tmp_path: Path) -> None:
    file = file_of(tmp_path / "old.jsonl", *OLD, *sealed(j.Void(), stream="t2"))
    assert absent(pending(OLD[1]), file) == ([], [])
    assert absent(pending(OLD[1])) == ([pending(OLD[1])], [])


def test_of_a_stream_that_was_pruned_twice_both_exports_are_wanted(tmp_path: Path) -> None:
    first, second = file_of(tmp_path / "1.jsonl", *OLD), file_of(tmp_path / "2.jsonl", *AGAIN)
    one = pending(OLD[1], SECOND)
    assert absent(one, first, second) == ([], []) and absent(one, second, first) == ([], [])
    assert absent(one, first) == ([one], []) and absent(one, second) == ([one], [])


def test_what_was_exported_twice_is_no_fault(tmp_path: Path) -> None:
    assert absent(pending(OLD[1]), file_of(tmp_path / "old.jsonl", *OLD, *OLD)) == ([], [])


def test_an_export_of_another_history_is_told(tmp_path: Path) -> None:
    forged = sealed(j.Enqueued("t1", "bill", "k", {}), j.Stepped("s", "draft", 2), j.Finished("done"))
    left, wrong = absent(pending(OLD[1]), file_of(tmp_path / "old.jsonl", *forged))
    assert left == [] and wrong == ["row 2 of the export is not the one that was signed, or that the store knows"]
    changed = (OLD[0], replace(OLD[1], at=2), OLD[2])
    left, wrong = absent(pending(OLD[1]), file_of(tmp_path / "changed.jsonl", *changed))
    assert left == [pending(OLD[1])] and "row 2 (stepped) was changed" in wrong[0]


def test_an_export_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text('{"tenant":"acme"}\n')
    with pytest.raises(Misuse, match="no export of semel's, or a damaged one"):
        absent(pending(OLD[1]), file)


class Heads(Signed):
    """One head."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        from semel.engine.heads import SignedHead

        yield SignedHead("acme", "t1", self.streams, OLD[self.streams - 1].hash if self.epoch == 0 else bytes(32))


@pytest.mark.parametrize(("seq", "wait"), [(1, True), (2, True), (3, False)])
def test_a_pruned_stream_is_not_called_tampered_with(seq: int, wait: bool) -> None:
    """The last row that went is named by the tombstone itself; those before it are for the exports to prove."""
    waiting: list[Pending] = []
    walk = Walk(Heads(Path("h"), streams=seq), None)
    assert list(_against(walk, [STONE], Report(), waiting)) == []
    assert [one.seq for one in waiting] == ([seq] if wait else [])


def test_a_tombstone_for_another_history_than_the_signed_one_is_named() -> None:
    (wrong,) = _against(Walk(Heads(Path("h"), streams=3, epoch=1), None), [STONE], Report(), [])
    assert wrong.what == "rewritten"
