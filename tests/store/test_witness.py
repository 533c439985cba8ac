"""The witness's file: what gives way to what, and what it keeps of a store that may forget it (R19)."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from semel.engine.arrival import asked
from semel.machine.journal import Row
from semel.store.contract import StoreInfo, Witnessed
from semel.store.witness import Witness

INFO = StoreInfo("id", "app", 7, "postgres", "postgresql://h/d", "alone", 60_000)
ROW = ("default", "t1", 3, bytes(32))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEMEL_WITNESS", str(tmp_path))
    return tmp_path


def one(info: StoreInfo = INFO, gone: str = "", *, at: int = 0) -> Witness:
    """A process's, which is sure of what it sees, and saw one row at that time. gone: what the store says it does not hold."""
    witness = Witness(info, lambda seen: gone)
    witness.trusted = True
    witness.adopt(Witnessed(info.epoch, ROW if at else None, None, at))
    witness._new = True
    return witness


def kept(info: StoreInfo = INFO) -> object:
    found = Witness(info).load()
    return found and found.seen.at


def test_what_another_process_saw_gives_way_only_if_the_store_still_holds_it() -> None:
    one(at=10).save()
    one(gone="row 3 of t1", at=20).save()
    assert kept() == 10, "it may be all that shows that the store went back"
    one(at=20).save(ask=False)
    assert kept() == 10, "without asking, nothing of another's is overwritten"
    one(at=20).save()
    assert kept() == 20
    one(at=15).save()
    assert kept() == 20, "later is never overwritten by earlier"


def on_file() -> list[int]:
    found = Witness(INFO).load()
    assert found is not None
    return [seen.at for seen in found.all]


@pytest.mark.parametrize("others", [10, 30])
def test_what_one_saw_who_ends_is_on_file_beside_what_another_saw(others: int) -> None:
    one(at=others).save()  # which may rest on a store that went back, or be what shows it
    one(at=20).testify()  # it may have no store to ask any more: the file was replaced, the server is down
    assert on_file() == [others, 20]
    other = one(at=40)
    other._missing = lambda seen: "row 3 of t1" if seen.at == 20 else ""
    other.save()
    assert (on_file(), other.gone) == ([others, 20], "row 3 of t1"), "whoever would write there asks for all of it"
    one(at=50).save()
    assert on_file() == [50], "what the store holds has served its turn"


def test_whoever_comes_to_the_store_asks_for_all_that_is_on_file() -> None:
    one(at=30).save()
    one(at=20).testify()
    new = Witness(INFO, lambda seen: "row 3 of t1" if seen.at == 20 else "")
    store = SimpleNamespace(missing=new._missing)
    assert asked(new, SimpleNamespace(store=store), new.load(), INFO) == (False, "row 3 of t1", 20)  # type: ignore[arg-type]
    new.trusted = True
    assert [seen.at for seen in new.evidence()] == [0, 30, 20]


def test_of_those_who_ended_the_last_few_are_kept() -> None:
    one(at=100).save()
    for at in range(1, 12):
        one(at=at).testify()
    assert on_file() == [100, *range(4, 12)]


def test_what_was_gone_before_a_later_epoch_is_no_news_in_it() -> None:
    one(INFO._replace(epoch=8), at=30).save()
    one(gone="row 3 of t1", at=40).testify()
    assert kept() == 30


def test_it_overwrites_its_own_without_asking() -> None:
    mine = one(gone="all of it", at=10)
    mine.save()
    mine.beaten("s1", 1, INFO, 7, 20)
    assert kept() == 20


def test_that_there_was_an_asynchronous_standby_is_remembered_until_an_epoch_begins() -> None:
    one(INFO._replace(durability="asynchronous"), at=10).save()
    one(at=20).save()
    found = Witness(INFO).load()
    assert found is not None and found.durability == "asynchronous", "the link that dropped may be the partition itself"
    one(INFO._replace(epoch=8), at=30).save()
    found = Witness(INFO).load()
    assert found is not None and found.durability == "alone"


def test_the_largest_lease_and_unfenced_senders_are_remembered() -> None:
    one(INFO._replace(largest_ttl_ms=90_000, unfenced=True), at=10).save()
    one(at=20).save()  # a process that came before the store was told of it
    found = Witness(INFO).load()
    assert found is not None and (found.largest_ttl_ms, found.unfenced) == (90_000, True)
    told = one(at=30)
    told.known(INFO._replace(largest_ttl_ms=30_000))
    found = Witness(INFO).load()
    assert found is not None and found.largest_ttl_ms == 30_000, "whoever knows what the store says now may say less"


def test_a_copy_elsewhere_does_not_speak_for_this_one() -> None:
    staging = INFO._replace(place="postgresql://h/staging")
    one(at=10).save()
    assert kept(staging) == 10, "a hint, where there is none of this place"
    one(staging, at=30).save()
    assert (kept(), kept(staging)) == (10, 30)


def test_a_connection_that_is_being_made_does_not_wait_for_a_witness_that_waits_for_it() -> None:
    one(at=10).save()
    asks, answered, told = threading.Event(), threading.Event(), []

    def missing(seen: Witnessed) -> str:
        asks.set()
        answered.wait(10)
        return ""

    witness = Witness(INFO, missing)
    witness.trusted = True
    witness.adopt(Witnessed(INFO.epoch, ROW, None, 20))
    witness._new = True
    saving = threading.Thread(target=witness.save)
    connecting = threading.Thread(target=lambda: told.append(witness.evidence()))
    saving.start()
    asks.wait(10)
    connecting.start()
    connecting.join(2)
    try:
        assert [seen.at for seen in told[0]] == [20, 10]
    finally:
        answered.set()
        saving.join()
        connecting.join()


def test_however_many_stop_for_what_is_gone_the_proof_stays_on_file() -> None:
    one(at=100).save()
    one(at=1).testify()
    for at in range(101, 112):
        other = one(at=at)  # the store took it since it went back, and holds it
        other._missing = lambda seen: "row 3 of t1" if seen.at == 1 else ""
        if at % 2:
            other.save(beside=True)
        else:
            other.shown("row 3 of t1")
        other.testify()
    assert on_file() == [100, 1]


@pytest.mark.parametrize("beside", [False, True])
def test_what_another_process_puts_there_meanwhile_is_not_overwritten_unseen(beside: bool) -> None:
    one(at=10).save()
    asked: list[int] = []

    def missing(seen: Witnessed) -> str:
        if not asked:
            one(at=5).testify()
        asked.append(seen.at)
        return "row 3 of t1" if seen.at == 5 else ""

    mine = one(at=20)
    mine._missing = missing
    mine.save(beside=beside)
    assert (asked, on_file(), mine.gone) == ([10, 10, 5], [10, 5], "row 3 of t1")


def test_who_does_not_beat_asks_for_its_own_too() -> None:
    """It may have written on a store that was restored beneath it, and nothing else would show that."""
    mine = one(gone="row 3 of t1", at=10)
    mine.save()
    mine._seen, mine._new = Witnessed(7, (*ROW[:2], 2, ROW[3]), None, 20), True
    mine.save(beside=True)
    assert (kept(), mine.gone) == (10, "row 3 of t1")


def test_what_a_process_saw_is_on_file_before_a_new_connection_asks_the_store() -> None:
    """It may be this connection that lands on a store that went back, and the next process that could begin the new epoch."""
    witness = one(at=10)
    witness.save()
    witness._seen, witness._new = Witnessed(INFO.epoch, ("default", "t2", 1, bytes(32)), None, 20), True  # within the second
    assert on_file() == [10]
    witness.evidence()
    assert on_file() == [10, 20], "and the earlier stays: the store was not asked"


@pytest.mark.parametrize("beating", [True, False])
def test_what_is_found_to_be_gone_is_on_file_at_once(beating: bool) -> None:
    """Whoever found it out may be killed before its next beat, and nobody else may know."""
    witness = one(at=10)
    witness.save()
    witness._beating = beating
    witness.lost(Row("default", "t0", 4, "intended", "a", 0, 7, "{}", "id", b"\1" * 32), INFO.epoch)
    found = Witness(INFO).load()
    assert found is not None and ("default", "t0", 4, b"\1" * 32) in [seen.row for seen in found.all]
