"""Coming to a store (R19, R20): who may claim at once, who watches for how long, and who needs a person's word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from going_back import File, Place
from machines import TTL, Machine, accept, began, epoch_of, says, until, watched

from semel.engine.runtime import Runtime
from semel.errors import Misuse
from semel.machine import epochs, tasks
from semel.store.contract import StoreInfo, Witnessed
from semel.store.witness import path_of

Make = Callable[[str], Machine]


@pytest.fixture
def machine(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Machines by name; each has its own folder of witnesses."""
    made: dict[str, Machine] = {}

    def get(name: str) -> Machine:
        if name not in made:
            made[name] = Machine(place, tmp_path / name, monkeypatch)
        return made[name]

    yield get
    for one in made.values():
        one.end()


def worked(one: Machine, *keys: str) -> None:
    """A process comes, accepts these, beats, and ends."""
    process = one.process()
    watched(process)
    for key in keys:
        accept(process, key)
    one.end()


# --- nobody knows ---


def test_without_a_witness_a_process_claims_nothing_until_nobody_was_seen_to_beat_for_a_ttl(machine: Make) -> None:
    worked(machine("a"), "k1")
    other = machine("b").process()
    assert "has not seen this store before" in says(other)
    assert watched(other) == pytest.approx(TTL)


def test_who_has_a_witness_that_the_store_holds_does_not_watch(machine: Make) -> None:
    worked(machine("a"), "k1")
    assert watched(machine("a").process()) == 0


def test_a_beat_that_advances_ends_the_watch(machine: Make) -> None:
    first = machine("a").process()
    watched(first)
    session = first.session()
    other = machine("b").process()
    assert says(other)
    machine("b").clock.now += TTL / 4
    assert says(other), "nothing has moved yet"
    number = session.number
    until("it beats", lambda: session.number > number)
    machine("b").clock.now += TTL / 4
    assert says(other) == ""


def test_time_in_which_nobody_looked_is_not_watching(machine: Make) -> None:
    worked(machine("a"), "k1")
    other = machine("b").process()
    assert says(other)
    machine("b").clock.now += 10 * TTL
    assert says(other)
    assert watched(other) == pytest.approx(TTL)


def test_who_watched_in_vain_says_what_cannot_be_told_from_here(machine: Make, caplog: pytest.LogCaptureFixture) -> None:
    worked(machine("a"), "k1")
    watched(machine("b").process())
    assert "semel restore --old-is-down" in caplog.text


# --- the store went back ---


def test_a_store_that_went_back_begins_one_epoch_and_claims_nothing_for_the_largest_ttl(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    before = machine("a").process().desk.store.info.epoch
    machine("a").end()
    place.go_back()
    process = machine("a").process()
    assert "went back" in says(process)
    state = epoch_of(process)
    assert state.epoch > before and state.doubtful and state.window and not state.watched
    assert watched(process) == pytest.approx(TTL)
    assert epoch_of(process).watched
    assert process.session().epoch == state.epoch == process.desk.store.info.epoch
    assert len(began(process)) == 1
    machine("a").end()
    assert watched(machine("a").process()) == 0, "others that come later do not wait again"


def test_another_machine_that_comes_during_the_watch_waits_as_long_as_the_epoch_is_old_for_it(
    machine: Make, place: Place
) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    place.go_back()
    assert says(machine("a").process())
    late = machine("b").process()
    assert watched(late) == pytest.approx(TTL)
    assert watched(machine("a").processes[0]) <= TTL


def test_a_beat_alone_shows_that_the_store_went_back(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    process = machine("a").process()
    session = process.session()
    on_file = lambda: json.loads(machine("a").file.read_text())["beat"]  # noqa: E731
    until("it has beaten, and that is on file", lambda: on_file()[0] == session.id and on_file()[1] > 0)
    machine("a").end()
    place.go_back()
    process = machine("a").process()
    assert "beat" in says(process)
    assert len(began(process)) == 1


def test_what_was_written_again_at_the_same_place_is_not_what_was_witnessed(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    place.go_back()
    process = machine("b").process()
    accept(process, "k2")
    machine("b").end()
    assert "went back" in says(machine("a").process())


def test_a_row_that_is_another_at_its_place_is_missing(machine: Make) -> None:
    """It went back, and others wrote there since."""
    process = machine("a").process()
    task = accept(process, "k1")
    (row,) = process.desk.store.rows("default", task)
    seen = Witnessed(process.desk.store.info.epoch, (row.tenant, row.stream, row.seq, row.hash), None)
    assert process.desk.store.missing(seen) == ""
    other = seen._replace(row=(row.tenant, row.stream, row.seq, b"another"))
    assert process.desk.store.missing(other) == f"row 1 of {task} as it was"
    assert process.desk.store.missing(seen._replace(row=(row.tenant, row.stream, 2, row.hash))) == f"row 2 of {task}"
    assert process.desk.store.missing(seen._replace(beat=("nobody", 0))) == "beat 0 of session nobody"


def test_two_that_notice_at_once_begin_one_epoch(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    place.go_back()
    one, other = machine("a").process(), machine("a").process()
    info = other.desk.store.reread()
    assert "went back" in says(one)
    other.desk.store.reread = lambda: info  # type: ignore[method-assign]  # it has looked before the first one began it
    assert "went back" in says(other)
    del other.desk.store.reread  # type: ignore[method-assign]
    assert len(began(one)) == 1
    assert watched(other) <= TTL and watched(one) <= TTL
    assert len(began(one)) == 1


def test_two_restores_in_a_row_are_two_epochs_and_what_was_in_doubt_still_is(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up("first")
    worked(machine("a"), "k2")
    place.go_back("first")
    process = machine("a").process()
    watched(process)
    first = epoch_of(process)
    accept(process, "k3")
    machine("a").end()
    place.back_up("second")
    worked(machine("a"), "k4")
    place.go_back("second")
    process = machine("a").process()
    watched(process)
    second = epoch_of(process)
    assert second.epoch > first.epoch and second.doubtful and second.window
    assert second.since == first.since, "the first doubt stands: nothing since then is certain"
    machine("a").end()
    place.go_back("first")  # to before the first epoch: the store does not even know of it
    process = machine("a").process()
    assert f"epoch {second.epoch}" in says(process)
    watched(process)
    assert epoch_of(process).epoch > second.epoch


def test_an_epoch_is_never_below_the_unix_time_nor_the_witness(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    data = json.loads(machine("a").file.read_text())
    machine("a").file.write_text(json.dumps({**data, "epoch": 5_000_000_000}))
    place.go_back()
    process = machine("a").process()
    assert "epoch 5000000000" in says(process)
    assert epoch_of(process).epoch == 5_000_000_001


# --- the evidence ---


def test_who_accepts_tasks_on_a_store_that_went_back_does_not_destroy_the_evidence(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    witnessed = machine("a").file.read_text()
    place.go_back()
    enqueuer = machine("a").process()
    highest = max(row.at for row in enqueuer.desk.store.rows("default", accept_old(enqueuer, "k1")))
    task = accept(enqueuer, "k3")
    machine("a").end()
    assert machine("a").file.read_text() == witnessed
    worker = machine("a").process()
    assert "went back" in says(worker)
    watched(worker)
    state = epoch_of(worker)
    found = tasks.fold(worker.desk.store.rows("default", task))
    assert state.doubt(found) is not None, "it may be one that was lost"
    assert state.since <= highest, "what was accepted after it went back says nothing of when it went back to"


def accept_old(process: Runtime, key: str) -> str:
    """The id of a task that is there already."""
    found = process.desk.store.find_task("default", "bill", key)
    assert found
    return found


def test_a_process_that_knows_less_does_not_overwrite_what_another_saw_later(machine: Make) -> None:
    early = machine("a").process()
    watched(early)
    accept(early, "k1")
    accept(early, "k2")  # not on file yet: it is written once a second at most, but for beats
    late = machine("a").process()
    late_at = late.session()
    late.witness.beaten(late_at.id, 7, late.desk.store.info, late_at.epoch, late.desk.clock.wall_ms() + 60_000)
    early.witness.save()
    assert json.loads(machine("a").file.read_text())["beat"] == [late_at.id, 7]


def test_a_file_of_an_older_epoch_counts_for_nothing(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    worked(machine("b"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    place.go_back()
    watched(machine("a").process())
    machine("a").end()
    assert watched(machine("b").process()) == pytest.approx(TTL)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"store": "x"}', "\x00\xff"])
def test_a_file_that_cannot_be_read_counts_for_nothing_and_is_written_anew(
    machine: Make, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    worked(machine("a"), "k1")
    machine("a").file.write_text(text)
    process = machine("a").process()
    assert "cannot be read" in caplog.text
    assert watched(process) == pytest.approx(TTL)
    assert json.loads(machine("a").file.read_text())["store"] == process.desk.store.info.id


def test_a_folder_that_cannot_be_written_is_told_once_and_stops_nobody(
    machine: Make, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    one = machine("a")
    process = one.process()
    assert one.folder is not None
    one.folder.write_text("not a folder")
    watched(process)
    accept(process, "k1")
    process.witness.save()
    assert caplog.text.count("cannot be written") == 1


def test_a_witness_folder_that_is_a_file_is_refused(machine: Make, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("not a folder")
    with pytest.raises(Misuse, match="is not a folder"):
        machine("a").process()


# --- where a person must speak ---


def test_a_copy_that_is_opened_elsewhere_waits_for_a_persons_word(machine: Make, place: Place) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    data = json.loads(machine("a").file.read_text())
    machine("a").file.write_text(json.dumps({**data, "place": "elsewhere"}))
    place.go_back()
    process = machine("a").process()
    said = says(process)
    assert "semel restore --old-is-down --by YOU --reason WHY" in said
    assert "elsewhere" in said
    assert began(process) == []


@pytest.mark.parametrize("side", ["then", "now"])
def test_with_an_asynchronous_standby_it_waits_for_a_persons_word(machine: Make, place: Place, side: str) -> None:
    worked(machine("a"), "k1")
    place.back_up()
    worked(machine("a"), "k2")
    if side == "then":
        data = json.loads(machine("a").file.read_text())
        machine("a").file.write_text(json.dumps({**data, "durability": "asynchronous"}))
    place.go_back()
    process = machine("a").process()
    if side == "now":
        info = process.desk.store.reread()
        process.desk.store.reread = lambda: info._replace(durability="asynchronous")  # type: ignore[method-assign]
    assert "semel restore --old-is-down" in says(process)
    assert began(process) == []


def test_a_lease_longer_than_the_store_permits_is_refused(machine: Make) -> None:
    process = machine("a").process()
    process.ttl = TTL + 1
    with pytest.raises(Misuse, match="longer than this store permits"):
        process.session()


# --- where the file lies ---


def test_where_a_witness_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SEMEL_WITNESS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    file = StoreInfo("i", "a", 1, "sqlite", "/var/agent.db")
    base = StoreInfo("i", "a", 1, "postgres", "postgresql://h/d")
    assert path_of(file) == Path("/var/agent.db.witness")
    own = path_of(base)
    assert own is not None and re.fullmatch(r"/state/semel/i\.[0-9a-f]{8}\.json", str(own))
    assert path_of(base._replace(place="postgresql://h/copy")) != own, "a copy elsewhere has the same id"
    assert path_of(base._replace(tenant="a/c me")) == own.with_name(own.name.replace(".json", ".a%2Fc%20me.json"))
    assert path_of(file._replace(place=":memory:")) is None
    monkeypatch.setenv("SEMEL_WITNESS", str(tmp_path))
    found = path_of(file), path_of(base)
    assert all(path is not None and path.parent == tmp_path and path.name.startswith("i.") for path in found), found
    assert path_of(file._replace(place=":memory:")) is None


@pytest.mark.only("sqlite")
def test_another_store_at_the_same_place_is_a_new_one(
    place: File, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file beside it tells of the one that was there."""
    one = Machine(place, None, monkeypatch)
    worked(one, "k1")
    before = json.loads(place.witness.read_text())["store"]
    place.path.unlink()
    place.open().close()  # made by somebody else
    process = one.process()
    assert "was another store when this machine last saw it" in caplog.text
    assert watched(process) == pytest.approx(TTL)
    assert json.loads(place.witness.read_text())["store"] == process.desk.store.info.id != before
    one.end()


def test_the_epoch_of_a_store_that_never_went_back_is_its_first(machine: Make) -> None:
    process = machine("a").process()
    watched(process)
    assert epoch_of(process) == epochs.Epoch()
