"""Sessions: beats, watched beats, proof of death, sweeps, what was learnt (R14 to R17, R4)."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from semel.engine import own, standing
from semel.engine.clock import Clock
from semel.engine.drive import run
from semel.engine.ledger import Desk, Ledger
from semel.engine.queue import Order, accepted, claim_one, enqueue, not_taken
from semel.engine.recover import note_senders
from semel.engine.session import NEIGHBOUR_SECONDS, PAGE, Learnt, Session, land
from semel.engine.standing import Standing
from semel.errors import StoreUnavailable
from semel.machine import effects as e
from semel.machine import epochs, tasks
from semel.machine import journal as j
from semel.model import Limits, Refusal, Retry
from semel.store.contract import Claims, SessionRow
from semel.store.sqlite import SQLite
from semel.store.writer import Ticket, Writer
from semel.watchdog import Watchdog, read_stat

TTL = 8.0


class StillClock(Clock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def raw_ms(self) -> int:
        return int(self.now * 1000)

    def boot(self) -> float:
        return self.now


class Lab:
    def __init__(self) -> None:
        self.store = SQLite(":memory:")
        self.clock = StillClock()
        self.desk = Desk(self.store, Writer(self.store), self.clock, Standing(self.store))
        self.fenced: list[str] = []
        self.sessions: list[Session] = []

    def session(self) -> Session:
        """A session whose threads never run: the test beats and tends."""
        made = Session(self.desk, ttl=TTL, watchdog=Watchdog(False), on_fenced=self.fenced.append, learnt=Learnt(self.clock))
        made._run = lambda: None  # type: ignore[method-assign]
        made._tend_on = lambda: None  # type: ignore[method-assign]
        made.start()
        self.sessions.append(made)
        return made

    def other(self, nonce: str = "n0", **changed: Any) -> SessionRow:
        """Another process's session: alive as far as anybody can tell, since its boot id is another's."""
        row = SessionRow("other", 0, nonce, int(TTL * 1000), self.store.info.epoch, "elsewhere", "boot", 1, 1, 1, 1, "", 0)
        row = row._replace(**changed)
        self.store.open_session(row)
        return row

    def task(self, key: str = "k") -> str:
        task, ticket = enqueue(self.desk, Order("acme", "bill", key, {}, "default"))
        ticket.wait(10)
        return accepted(task, ticket.value)

    def claimed(self, session: Session, task: str) -> Ledger:
        ticket, registered = claim_one(self.desk, session, "acme", task, Retry(), [], Limits(seconds=60))
        ticket.wait(10)
        not_taken(session, registered, ticket.value)
        assert isinstance(ticket.value, Claims), ticket.value
        (taken,) = ticket.value.tasks
        return Ledger(self.desk, taken.tenant, taken.task, taken.head, "test")

    def intend(self, ledger: Ledger, key: str = "K", unfenced: str = "") -> None:
        state = ledger.state
        command = e.Intend(key, "pay", {}, "d", "", state.id, state.attempt, state.token, state.session, unfenced=unfenced)
        assert land(ledger, command)

    def read(self, task: str) -> tasks.Task:
        return tasks.fold(self.store.rows("acme", task))


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.desk.writer.close()
    lab.store.close()


def test_r14_a_beat_that_stands_still_for_the_whole_ttl_is_fenced(lab: Lab) -> None:
    session, _ = lab.session(), lab.other()
    for _ in range(int(TTL)):
        session.watch()
        assert lab.store.session("other").fenced == ""  # type: ignore[union-attr]
        lab.clock.now += 1.0
    session.watch()
    assert lab.store.session("other").fenced == "watched"  # type: ignore[union-attr]


def test_r14_no_session_is_watched_for_longer_than_any_may_have(lab: Lab) -> None:
    session, _ = lab.session(), lab.other(ttl_ms=10**12)
    for _ in range(int(lab.store.info.largest_ttl_ms / 1000) + 1):
        session.watch()
        lab.clock.now += 1.0
    assert lab.store.session("other").fenced == "watched"  # type: ignore[union-attr]


def test_r14_a_beat_that_moves_starts_the_watch_anew(lab: Lab) -> None:
    session, _ = lab.session(), lab.other()
    nonces = iter(f"n{i}" for i in range(1, 100))
    before = "n0"
    for i in range(30):
        session.watch()
        lab.clock.now += 1.0
        if i % 6 == 5:
            after = next(nonces)
            assert lab.store.beat("other", [before], after, i)
            before = after
    session.watch()
    assert lab.store.session("other").fenced == ""  # type: ignore[union-attr]


def test_r14_time_in_which_nobody_looked_is_not_watching(lab: Lab) -> None:
    session, _ = lab.session(), lab.other()
    session.watch()
    lab.clock.now += 1000.0  # the store was away, or this very process was stopped
    session.watch()
    lab.clock.now += 1.0
    session.watch()
    assert lab.store.session("other").fenced == ""  # type: ignore[union-attr]


def test_r14_the_fence_is_a_compare_and_set_on_the_watched_beat(lab: Lab) -> None:
    session, row = lab.session(), lab.other()
    assert lab.store.beat("other", ["n0"], "n1", 1)
    session.fence(row, "watched")  # decided on n0
    assert lab.store.session("other").fenced == ""  # type: ignore[union-attr]


def test_r14_no_wall_clock_decides(lab: Lab) -> None:
    session, _ = lab.session(), lab.other()
    session.watch()
    lab.clock.raw_ms = lambda: 10**15  # type: ignore[method-assign]
    for _ in range(3):
        lab.clock.now += 1.0
        session.watch()
    assert lab.store.session("other").fenced == ""  # type: ignore[union-attr]


def test_r14_proof_of_death_fences_at_once(lab: Lab) -> None:
    session = lab.session()
    own = session.identity
    lab.other(boot_id=own.boot_id, host=own.host, pid_ns=own.pid_ns, time_ns=own.time_ns, pid=2**22 + 1, start_time=1)
    session.watch()
    assert lab.store.session("other").fenced == "dead"  # type: ignore[union-attr]


def test_r14_the_end_of_a_process_of_this_machine_is_noticed_long_before_the_next_beat(lab: Lab) -> None:
    process = subprocess.Popen(["sleep", "600"])
    stat = read_stat(process.pid)
    assert stat is not None
    session = Session(lab.desk, ttl=3600.0, watchdog=Watchdog(False), on_fenced=lab.fenced.append, learnt=Learnt(lab.clock))
    session.start()  # with its threads; the first beat is a quarter of an hour away
    try:
        own = session.identity
        world = {"boot_id": own.boot_id, "host": own.host, "pid_ns": own.pid_ns, "time_ns": own.time_ns}
        lab.other(**world, pid=process.pid, start_time=stat.start_time)
        session.tend()
        time.sleep(2 * NEIGHBOUR_SECONDS)
        assert lab.store.session("other").fenced == ""  # type: ignore[union-attr]
        process.kill()  # and not waited for: a zombie, as a worker of a supervisor is for a moment
        end = time.monotonic() + 30
        while lab.store.session("other").fenced != "dead" and time.monotonic() < end:  # type: ignore[union-attr]
            time.sleep(0.01)
        assert lab.store.session("other").fenced == "dead"  # type: ignore[union-attr]
    finally:
        session.stop(leave=True)
        process.kill()
        process.wait()


def test_r15_the_deadline_counts_from_the_sending_of_the_last_acknowledged_beat(lab: Lab) -> None:
    session = lab.session()
    real = lab.store.beat

    def slow(*args: Any) -> bool:
        lab.clock.now += 3.0  # on the way
        return real(*args)

    lab.store.beat = slow  # type: ignore[method-assign]
    sent = lab.clock.now
    assert session._beat()
    assert session._deadline == sent + 0.75 * TTL
    lab.clock.now = sent + 0.75 * TTL - 0.01
    assert session.alive()
    lab.clock.now = sent + 0.75 * TTL
    assert not session.alive()


def test_r15_a_beat_whose_reply_was_lost_is_no_fence(lab: Lab) -> None:
    session = lab.session()
    real = lab.store.beat

    def lost(*args: Any) -> bool:
        assert real(*args)
        raise StoreUnavailable("the reply was lost")

    lab.store.beat = lost  # type: ignore[method-assign]
    before = session._deadline
    lab.clock.now += 1.0
    assert not session._beat() and session._deadline == before
    lab.store.beat = real  # type: ignore[method-assign]
    unanswered = lab.store.session(session.id)
    assert session._beat() and not session.fenced, "the nonce sent since must be accepted too"
    answered = lab.store.session(session.id)
    assert unanswered is not None and answered is not None
    assert session.number == answered.beat > unanswered.beat, "a copy with that one does not hold this one (R19)"


def test_r15_a_refused_beat_fences_this_session_at_once(lab: Lab) -> None:
    session = lab.session()
    assert lab.store.fence(session.id, None, "watched")
    session._beat()
    assert session.fenced and lab.fenced and not session.alive()


def test_r4_code_that_outlives_its_timeout_by_a_ttl_stops_the_beats(lab: Lab) -> None:
    session = lab.session()
    late = [0.0]
    session.overdue_by(lambda: late[0])
    assert session._beat()
    late[0] = TTL + 0.1
    nonce = lab.store.session(session.id).nonce  # type: ignore[union-attr]
    assert not session._beat()
    assert lab.store.session(session.id).nonce == nonce  # type: ignore[union-attr]


def test_r17_the_sweep_takes_back_what_a_fenced_session_holds(lab: Lab) -> None:
    dead, session = lab.session(), lab.session()
    task = lab.task()
    lab.intend(lab.claimed(dead, task))
    lab.store.fence(dead.id, None, "watched")
    session.sweep()
    state = lab.read(task)
    assert (state.delivery, state.execution, state.crashes) == ("queued", "unknown", 1)
    assert state.effects["K"].state == "ambiguous" and state.effects["K"].quiet


ENDS = {
    "fail": lambda token: tasks.Fail(token, "no", 0),
    "park": lambda token: tasks.Park(token, "stop", 0),
    "block": lambda token: tasks.Block(token, "look"),
    "sleep": lambda token: tasks.Wait(token, "w", "", 10**15, 0),
    "wait": lambda token: tasks.Wait(token, "w", "paid", 0, 0),
    "exceed": lambda token: tasks.Exceed(token, 0, 60_001),
}


@pytest.mark.parametrize("how", ENDS)
def test_r2_each_end_of_an_attempt_loses_what_it_submitted_under_a_key_of_the_tenant(lab: Lab, how: str) -> None:
    ledger = lab.claimed(lab.session(), lab.task())
    state = ledger.state
    command = e.Intend("K", "pay", {}, "d", "", state.id, state.attempt, state.token, state.session)
    intended = ledger.propose(command, scope="tenant")
    assert not isinstance(intended, Refusal) and intended.ticket is not None
    assert intended.ticket.wait(10)
    assert land(ledger, ENDS[how](state.token))
    effect = tasks.fold_key(lab.store.rows("acme", "K")).effect
    assert effect is not None and effect.state == "ambiguous"


def test_r17_a_claim_that_commits_after_the_fence_cannot_land_and_the_sweep_is_standing(lab: Lab) -> None:
    dead, session = lab.session(), lab.session()
    task = lab.task()
    lab.store.fence(dead.id, None, "watched")
    session.sweep()  # finds nothing
    ticket, registered = claim_one(lab.desk, dead, "acme", task, Retry(), [])
    ticket.wait(10)
    not_taken(dead, registered, ticket.value)
    assert not isinstance(ticket.value, Claims) and lab.read(task).delivery == "queued"


def test_r17_what_the_store_says_is_ours_and_we_know_nothing_of_goes_back(lab: Lab) -> None:
    session = lab.session()
    task = lab.task()
    lab.claimed(session, task)
    session.held.clear()  # the answer to the claim was lost
    session.check_own()
    assert lab.read(task).delivery == "leased", "seen once, it may be on its way"
    session.check_own()
    assert lab.read(task).delivery == "queued"


def test_r17_nonsense_that_is_said_to_be_ours_keeps_no_other_task_from_going_back(lab: Lab) -> None:
    session = lab.session()
    good = [lab.task(f"k{i}") for i in range(8)]
    for task in good:
        lab.claimed(session, task)
    for n in range(8):
        stream = f"nonsense{n}"
        lab.store._writer.raw.execute(
            "INSERT INTO journal VALUES ('evil', ?, 1, 'of a later version', 'x', 0, 0, '{}', 'x', x'00')", (stream,)
        )
        lab.store._writer.raw.execute("INSERT INTO inflight VALUES (?, 'evil', ?)", (session.id, stream))
    session.held.clear()
    for _ in range(2):
        session.check_own()
    assert {lab.read(task).delivery for task in good} == {"queued"}


def test_r17_what_was_claimed_again_while_others_were_swept_is_held(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lab.session()
    task = lab.task()
    first = lab.claimed(session, task)
    session.held.clear()
    session.tend()  # it looked strange at this beat,

    def long_sweep() -> None:  # and at the next; meanwhile its answer comes, it goes back, and it is claimed once more
        assert land(first, tasks.Park(first.state.token, "it waits", 0))
        lab.claimed(session, task)

    monkeypatch.setattr(session, "watch", lambda *seen: True)
    monkeypatch.setattr(session, "sweep", long_sweep)
    session.tend()
    assert (lab.read(task).delivery, lab.read(task).attempt) == ("leased", 2), "it runs here"


def test_r17_what_is_held_stays(lab: Lab) -> None:
    session = lab.session()
    task = lab.task()
    lab.claimed(session, task)
    for _ in range(3):
        session.check_own()
    assert lab.read(task).delivery == "leased"


@pytest.mark.parametrize("bad", [1, PAGE + 20])
def test_r17_tasks_that_cannot_be_read_starve_none_behind_them(lab: Lab, bad: int) -> None:
    dead, session = lab.session(), lab.session()
    good = [lab.task(f"k{i}") for i in range(5)]
    for task in good:
        lab.claimed(dead, task)
    lab.store._writer.raw.execute(
        "INSERT INTO journal VALUES ('acme', '0-later', 1, 'of a later version', 'x', 0, 0, '{}', 'x', x'00')"
    )
    lab.store._writer.raw.execute("INSERT INTO inflight VALUES (?, 'acme', '0-later')", (dead.id,))
    for n in range(bad):
        lab.store._writer.raw.execute("INSERT INTO inflight VALUES (?, 'acme', ?)", (dead.id, f"0-no-such-task-{n:03}"))
    lab.store.fence(dead.id, None, "dead")
    session.sweep()
    assert [lab.read(task).delivery for task in good] == ["queued"] * 5


def test_what_the_dead_held_is_taken_back_at_the_beat_at_which_they_are_fenced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, session = lab.session(), lab.session()
    task = lab.task()
    lab.claimed(dead, task)
    session.tend()
    assert lab.read(task).delivery == "leased"
    monkeypatch.setattr(session, "knows_dead", lambda row: row.id == dead.id)
    session.tend()
    assert lab.read(task).delivery == "queued"


def test_r20_a_beat_reads_the_epoch_again_if_its_stream_has_moved(lab: Lab) -> None:
    session = lab.session()
    session.tend()
    before = lab.desk.standing.epoch
    begin = epochs.Begin(lab.store.info.epoch, lab.store.info.epoch, 10**6, "incarnation", 1, "why", 0)
    assert not isinstance(own.land(lab.desk, epochs.STREAM, epochs.fold, lambda state: epochs.decide(state, begin), "t"), Refusal)
    session.tend()
    assert lab.desk.standing.epoch != before and lab.desk.standing.epoch.doubtful


def test_r20_two_who_read_the_epoch_at_a_time_leave_none_behind(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow one has read what stood before, and puts it down last: the next beat must see that the stream has moved."""
    session = lab.session()
    begin = epochs.Begin(lab.store.info.epoch, lab.store.info.epoch, 10**6, "incarnation", 1, "why", 0)
    monotonic, slow = time.monotonic, [True]

    def other() -> float:
        if slow.pop() if slow else False:  # just now another thread reads it, and the epoch is a new one
            assert not isinstance(own.land(lab.desk, epochs.STREAM, epochs.fold, lambda s: epochs.decide(s, begin), "t"), Refusal)
            lab.desk.standing.read()
        return monotonic()

    monkeypatch.setattr(standing, "time", SimpleNamespace(monotonic=other))
    lab.desk.standing.read()
    session.tend()
    assert lab.desk.standing.epoch.doubtful


def test_r4_settle_counts_from_when_this_process_learnt_that_every_sender_is_quiet(lab: Lab) -> None:
    learnt = Learnt(lab.clock)
    sent = e.Sent(1, "t", 1, 1, "s", 0, lost=True)
    effect = e.Effect("K", "pay", {}, "d", "", "", 0, (), (sent,))
    assert learnt.waited_ms("acme", effect) == -1
    lab.clock.now += 100
    quiet = replace(effect, sent=(replace(sent, fenced=True),))
    assert learnt.waited_ms("acme", quiet) == 0
    lab.clock.now += 2.5
    assert learnt.waited_ms("acme", quiet) == 2500
    again = replace(quiet, sent=(*quiet.sent, replace(sent, n=2, ended=True)))
    assert learnt.waited_ms("acme", again) == 0, "a further submission is a further fact to learn"


def test_r4_settle_is_not_reckoned_by_a_wall_clock(lab: Lab) -> None:
    learnt = Learnt(lab.clock)
    effect = e.Effect("K", "pay", {}, "d", "", "", 0, (), (e.Sent(1, "t", 1, 1, "s", 0, lost=True, ended=True),))
    learnt.waited_ms("acme", effect)
    lab.clock.raw_ms = lambda: 10**15  # type: ignore[method-assign]
    assert learnt.waited_ms("acme", effect) == 0


def test_every_process_learns_at_its_beat(lab: Lab) -> None:
    dead, session = lab.session(), lab.session()
    task = lab.task()
    lab.intend(lab.claimed(dead, task))
    lab.store.fence(dead.id, None, "dead")
    session.sweep()
    session.learn()
    lab.clock.now += 3.0
    assert session.learnt.waited_ms("acme", lab.read(task).effects["K"]) == 3000


def asked(lab: Lab, recovery: tuple[str, ...] = ("ask:5000",)) -> tuple[Session, str]:
    """A session that lives; and a task of a dead one, whose call is unknown, and about which a person is asked."""
    dead, session, task = lab.session(), lab.session(), lab.task()
    ledger = lab.claimed(dead, task)
    state = ledger.state
    assert land(ledger, e.Intend("K", "pay", {}, "d", "", state.id, state.attempt, state.token, state.session, recovery=recovery))
    lab.store.fence(dead.id, None, "dead")
    session.sweep()
    ledger = lab.claimed(session, task)
    assert land(ledger, tasks.Block(ledger.state.token, "nobody but a person can tell", "K"))
    return session, task


def test_r4_a_session_that_is_fenced_says_no_more_that_settle_is_over(lab: Lab) -> None:
    """It may have watched what a new epoch must watch anew (R20)."""
    session, task = asked(lab)
    session.learn()
    lab.clock.now += 60.0
    lab.store.fence(session.id, None, "watched")
    session.learn()
    assert not lab.read(task).effects["K"].watched


def test_r4_the_end_of_settle_is_put_on_record_while_a_person_is_asked(lab: Lab) -> None:
    session, task = asked(lab)
    session.learn()
    lab.clock.now += 4.9
    session.learn()
    assert not lab.read(task).effects["K"].watched, "settle is not over"
    lab.clock.now += 0.1
    session.learn()
    assert lab.read(task).effects["K"].watched and lab.read(task).delivery == "blocked"
    rows = lab.store.rows("acme", task)
    assert (rows[-1].kind, rows[-1].actor) == ("watched", f"session:{session.id}")
    session.learn()
    assert len(lab.store.rows("acme", task)) == len(rows), "once"


def test_r4_the_longest_settle_that_was_declared_is_watched(lab: Lab) -> None:
    """A lookup's may be longer than that of `Ask`: for so long the request may act, whoever looks."""
    session, task = asked(lab, ("lookup:60000", "ask:5000"))
    session.learn()
    lab.clock.now += 59.9
    session.learn()
    assert not lab.read(task).effects["K"].watched
    lab.clock.now += 0.1
    session.learn()
    assert lab.read(task).effects["K"].watched


def test_r4_nothing_is_noted_of_a_task_that_waits_for_a_worker(lab: Lab) -> None:
    session, task = asked(lab)
    assert land(
        Ledger.read(lab.desk, "acme", task, "test"), e.Answer("K", "conflict", "ann", lab.read(task).effects["K"].version)
    )  # type: ignore[arg-type]
    assert land(Ledger.read(lab.desk, "acme", task, "test"), tasks.Unblock("look", 0))  # type: ignore[arg-type]
    for _ in range(3):
        session.learn()
        lab.clock.now += 10.0
    assert not lab.read(task).effects["K"].watched, "its ladder is climbed by whoever claims it"


def test_a_rival_was_faster_and_the_outcome_is_evidence(lab: Lab) -> None:
    """R2, R5: queued on a version that is no longer; decided again, it is late."""
    dead, session = lab.session(), lab.session()
    task = lab.task()
    ledger = lab.claimed(dead, task)
    lab.intend(ledger)
    lab.store.fence(dead.id, None, "watched")
    session.sweep()
    done = threading.Event()
    ledger.post(e.Confirm("K", 1, ledger.state.token, "receipt"), after=done.set)
    assert done.wait(10)
    effect = lab.read(task).effects["K"]
    assert effect.state == "ambiguous" and [x.result for x in effect.evidence] == ["receipt"]


def test_an_intent_of_a_fenced_session_cannot_land(lab: Lab) -> None:
    dead = lab.session()
    ledger = lab.claimed(dead, lab.task())
    lab.store.fence(dead.id, None, "watched")
    state = ledger.state
    command = e.Intend("K", "pay", {}, "d", "", state.id, state.attempt, state.token, state.session)
    proposed = ledger.propose(command, guard=dead.guard())
    assert proposed.ticket is not None and proposed.ticket.wait(10)  # type: ignore[union-attr]
    assert "fenced" in proposed.ticket.value.why  # type: ignore[union-attr]
    assert not any(isinstance(j.event_of(r), j.Intended) for r in lab.store.rows("acme", state.id))


def test_r4_a_process_that_dies_after_it_was_fenced_is_known_to_be_dead(lab: Lab) -> None:
    """Fenced by its beat while it was frozen, killed later: an unfenced submission of it is quiet then, by proof."""
    session = lab.session()
    own = session.identity
    row = lab.other(boot_id=own.boot_id, host=own.host, pid_ns=own.pid_ns, time_ns=own.time_ns, pid=2**22 + 1, start_time=1)
    lab.store.fence("other", None, "watched")
    assert session.knows_dead(row._replace(fenced="watched"))
    assert not session.knows_dead(row._replace(boot_id="another boot"))


def test_r4_only_a_sender_whose_session_is_fenced_is_noted_to_be_gone(lab: Lab) -> None:
    """Another worker climbs the ladder while the sender still lives: an attempt may end (cancel, replay) before its code does."""
    lab.other()
    ledger = lab.claimed(lab.session(), lab.task())
    state = ledger.state
    assert land(ledger, e.Intend("K", "pay", {}, "d", "", state.id, state.attempt, state.token, "other"))
    assert land(ledger, e.Lose("K", 1, state.token, "timeout", False))
    climber: Any = SimpleNamespace(session=lab.sessions[0], desk=lab.desk, ledger=ledger)

    def noted() -> tuple[bool, bool]:
        run(note_senders(climber, ledger.state.effects["K"]))
        (sent,) = ledger.state.effects["K"].open
        return sent.fenced, sent.dead

    assert noted() == (False, False)
    lab.store.fence("other", None, "watched")
    assert noted() == (True, False)


def test_an_outcome_that_cannot_be_recorded_keeps_anything_else_from_starting(lab: Lab) -> None:
    """Promise 4: in the store it is still merely submitted; what this process knows must bar the next intent."""
    ledger = lab.claimed(lab.session(), lab.task())
    lab.intend(ledger)
    submit = lab.desk.writer.submit

    def lost(unit: Any, **how: Any) -> Ticket:
        ticket = Ticket(unit)
        ticket.set(StoreUnavailable("patience is over"))
        return ticket

    lab.desk.writer.submit = lost  # type: ignore[method-assign]
    ledger.post(e.Lose("K", 1, ledger.state.token, "no answer", ended=False))
    lab.desk.writer.submit = submit  # type: ignore[method-assign]
    ledger.refresh()
    state = ledger.state
    assert state.effects["K"].state == "submitted" and not state.unknown
    other = e.Intend("L", "pay", {}, "d", "", state.id, state.attempt, state.token, state.session)
    refused = ledger.propose(other)
    assert isinstance(refused, Refusal) and refused.code == "unknown_outstanding"


def test_r17_a_journal_that_the_store_cannot_give_starves_none_beside_it(lab: Lab) -> None:
    dead, session = lab.session(), lab.session()
    held = [lab.task(f"k{i}") for i in range(3)]
    for task in held:
        lab.claimed(dead, task)
    raw = lab.store._writer.raw
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'journal'").fetchall():
        raw.execute(f"DROP TRIGGER {name}")
    raw.execute("UPDATE journal SET body = CAST(x'ff' AS TEXT) WHERE stream = ?", (held[1],))  # a damaged page, say
    lab.store.fence(dead.id, None, "dead")
    session.tend()
    assert [lab.read(task).delivery for task in (held[0], held[2])] == ["queued"] * 2
