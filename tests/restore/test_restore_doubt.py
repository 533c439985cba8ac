"""Doubt after a restore, as it is ended by people, step by step, under a worker that is never restarted (R20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from going_back import known_here, make
from restore_lab import RestoreLab, until

import semel
from semel.cli import restore
from semel.machine import epochs


class After:
    """A store that went back, and one worker that has come to it since."""

    def __init__(self, lab: RestoreLab) -> None:
        self.lab = lab
        self.refs: dict[str, semel.Ref[str]] = {}

    def come(self) -> None:
        lab = self.lab
        worker = lab.keeper()
        lab.back_up()
        for action in ("charge", "mail"):
            lab.result(lab.give(action))
        self.lost = {action: lab.acts(action)[0].id for action in ("charge", "mail")}
        lab.go_back()
        self.worker = lab.keeper()
        assert self.worker is not worker
        until("it has come", lambda: lab.has_begun() and lab.epoch().watched)

    def do(self, name: str, action: str, ref: str = "") -> None:
        self.refs[name] = self.lab.give(action, ref or name)
        self.lab.result(self.refs[name])

    def in_doubt(self, name: str) -> bool:
        return bool(self.lab.events(self.refs[name], "assumed") or self.shared(name))

    def shared(self, name: str) -> bool:
        """Of an effect of the whole tenant, which has a stream of its own."""
        keys = {e.body["key"] for e in self.lab.events(self.refs[name], "joined")}
        return any(e.kind == "assumed" for key in keys for e in self.lab.app.journal(key))

    def is_new(self, name: str) -> bool:
        (event,) = self.lab.events(self.refs[name], "enqueued")
        return not event.body.get("doubt")

    def run(self) -> None:
        """The whole of it, in order."""
        self.do("again", "charge", "charge")
        self.do("found", "mail", "mail")
        self.do("unlike", "mail", "unlike")
        restore.decided(self.lab.app, epochs.Close("all were enqueued again"), "ann", "all were enqueued again")
        self.accepted = 0
        while not self.refs.get("new") or not self.is_new("new"):  # who accepts may not know it for a moment
            self.accepted += 1
            self.do("new", "mail", f"new{self.accepted}")
            assert self.accepted < 200
        self.do("tenant", "tell_all", "tenant")
        self.do("tenant_again", "tell_all", "tenant")
        restore.decided(self.lab.app, epochs.Lift("all is well"), "ann", "all is well")
        self.lifted = 0
        while not self.refs.get("lifted") or self.in_doubt("lifted"):  # the worker knows it with its next beat
            self.lifted += 1
            self.do("lifted", "tell_all", f"lifted{self.lifted}")
            assert self.lifted < 500


@pytest.fixture
def after(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[After]:
    folder = tmp_path
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        place = make(dialect, folder / "store", lambda: str(request.getfixturevalue("server_url")), "doubt")
        known_here(place)
        lab = RestoreLab(folder / "lab", place)
        try:
            found = After(lab)
            try:
                found.come()
                found.run()
            except BaseException:
                print(lab.story())
                raise
            yield found
        finally:
            lab.close()
            place.close()


def a_task_that_was_lost_and_is_accepted_again_while_the_window_is_open_is_in_doubt(after: After) -> None:
    assert not after.is_new("again")
    assert after.in_doubt("again") and after.in_doubt("found") and after.in_doubt("unlike")
    assert after.refs["again"].result() == after.lost["charge"]
    assert after.refs["found"].result() == after.lost["mail"]
    assert len(after.lab.sent("mail")) == 1
    assert len(after.lab.sent("unlike")) == 1


def a_task_that_is_accepted_after_the_window_was_closed_is_new(after: After) -> None:
    assert not after.in_doubt("new")


def a_key_of_the_tenant_is_in_doubt_for_new_tasks_too(after: After) -> None:
    assert after.is_new("tenant") and after.in_doubt("tenant")
    assert len(after.lab.sent("tenant")) == 1
    assert after.refs["tenant"].result() == after.refs["tenant_again"].result()


def when_the_doubt_is_lifted_nothing_is_looked_for_any_more(after: After) -> None:
    assert not after.in_doubt("lifted")
    assert after.lab.epoch() == epochs.Epoch(
        after.lab.epoch().epoch, after.lab.epoch().incarnation, after.lab.epoch().since, False, False, True, 4
    )


def the_worker_went_on_all_the_time(after: After) -> None:
    assert after.worker.alive
    assert len(after.lab.workers) == 2
    after.lab.whole()


def test_doubt_from_its_beginning_to_its_end(after: After) -> None:
    """One story, since it takes a while; each line is a test of its own."""
    a_task_that_was_lost_and_is_accepted_again_while_the_window_is_open_is_in_doubt(after)
    a_task_that_is_accepted_after_the_window_was_closed_is_new(after)
    a_key_of_the_tenant_is_in_doubt_for_new_tasks_too(after)
    when_the_doubt_is_lifted_nothing_is_looked_for_any_more(after)
    the_worker_went_on_all_the_time(after)
