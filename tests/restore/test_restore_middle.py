"""A store is restored in the middle of work: what it has forgotten is found at the provider, and nothing is done twice (R20).

One story for each store. Tasks are stopped at their gates; then the backup is made; then some of them act; then machine and
store are lost, and the backup is put back. What each of them comes to is a test of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from going_back import TTL_MS, known_here, make
from restore_lab import RestoreLab, epoch_of, until

import semel
from semel.machine import journal as j

FORGOTTEN = ("charge", "mail", "publish", "fleeting", "subscribe", "tell_all")  # sent after the backup
FINAL = (semel.Delivery.ACKNOWLEDGED, semel.Delivery.BLOCKED)


class Story:
    """What happened, told by the lab."""

    def __init__(self, lab: RestoreLab) -> None:
        self.lab = lab
        self.refs: dict[str, semel.Ref[str]] = {}

    def give(self, action: str, ref: str) -> None:
        self.refs[ref] = self.lab.give(action, ref)

    def before(self) -> None:
        """Until the backup."""
        lab = self.lab
        for action in FORGOTTEN:
            lab.arm(f"start.{action}")
            self.give(action, action)
        for action in ("mail", "publish"):
            lab.arm(f"start.un{action}")
            self.give(action, f"un{action}")
        lab.arm("end.recorded", "flight.flying", "flight.looked")
        self.give("publish", "recorded")
        self.give("charge", "flying")
        self.give("mail", "looked")
        lab.place.permit(60_000)
        lab.keeper(lease=60)  # it is in the middle of calls while the database is copied
        for gate in (*(f"start.{a}" for a in FORGOTTEN), "start.unmail", "start.unpublish", "end.recorded", "flight.flying"):
            lab.arrived(gate)
        lab.arrived("flight.looked")
        until("it is on record", lambda: lab.events(self.refs["recorded"], "confirmed"))
        lab.back_up()

    def lost(self) -> None:
        """What is done after the backup, and forgotten with it."""
        lab = self.lab
        lab.room.joinpath("start.publish.open").touch()
        for action in FORGOTTEN:
            lab.open(f"start.{action}")
        until("they are done", lambda: all(lab.task(self.refs[a]).delivery == "acknowledged" for a in FORGOTTEN))
        lab.open("end.recorded")
        self.results = {a: self.refs[a].result() for a in FORGOTTEN}
        self.give("charge", "vanished")  # accepted and done after the backup: the store forgets all of it
        until("it is done", lambda: lab.task(self.refs["vanished"]).delivery == "acknowledged")
        self.highest = max(act.token or 0 for act in lab.acts())
        self.first_epoch = lab.app.runtime.desk.store.info.epoch
        lab.go_back()
        lab.place.permit(TTL_MS)

    def after(self) -> None:
        """Until all that can go on by itself has ended."""
        lab = self.lab
        for gate in ("start.unmail", "start.unpublish", "flight.flying", "flight.looked"):
            lab.open(gate)
        time.sleep(1.5)  # for `fleeting`: now its provider has forgotten the key
        lab.keeper()
        until("the epoch begins", lab.has_begun)
        self.give("charge", "vanished")  # whoever wanted it asks again
        until("all have come to an end", lambda: all(lab.task(ref).delivery in FINAL for ref in self.refs.values()))
        self.blocked = {ref for ref, task in self.refs.items() if lab.task(task).delivery == "blocked"}
        until("all are done", self.people_pass)

    def people_pass(self) -> bool:
        """Whether all are done; whoever is asked, maybe again since settle was not over, looks and answers."""
        waiting = {ref: self.lab.task(task).delivery for ref, task in self.refs.items()}
        for ref in sorted(ref for ref, delivery in waiting.items() if delivery == "blocked"):
            self.person(ref)
        return all(delivery == "acknowledged" for delivery in waiting.values())

    def person(self, ref: str) -> None:
        """Alice looks into the provider's books, and says what is there."""
        effect = self.lab.unknown(self.refs[ref])
        there = [act for act in self.lab.acts() if act.body["ref"] == ref]
        verdict: semel.Verdict = semel.Confirmed(there[0].id) if there else semel.NotFound()
        self.lab.app.review.resolve(effect.key, verdict, by="alice", seen=effect.version)

    def acts(self, ref: str) -> int:
        return sum(act.body["ref"] == ref for act in self.lab.acts())

    def kinds(self, ref: str) -> list[str]:
        return [event.kind for event in self.lab.events(self.refs[ref])]


@pytest.fixture
def story(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Story]:
    folder = tmp_path
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        place = make(dialect, folder / "store", lambda: str(request.getfixturevalue("server_url")), "middle")
        known_here(place)
        lab = RestoreLab(folder / "lab", place)
        try:
            found = Story(lab)
            try:
                found.before()
                found.lost()
                found.after()
            except BaseException:
                print(lab.story())
                raise
            yield found
        finally:
            lab.close()
            place.close()


def each_effect_has_happened_once(story: Story) -> None:
    assert {ref: story.acts(ref) for ref in story.refs} == dict.fromkeys(story.refs, 1)


def a_keyed_effect_that_was_forgotten_is_sent_with_the_same_key_and_a_higher_token(story: Story) -> None:
    for ref in ("charge", "vanished", "subscribe"):
        first, second = story.lab.sent(ref)
        assert first.key == second.key
        assert (second.token or 0) > story.highest >= (first.token or 0)
        assert epoch_of(second.token) == story.lab.epoch().epoch > epoch_of(first.token) == story.first_epoch
    assert story.refs["charge"].result() == story.results["charge"]


def an_effect_that_can_be_looked_up_is_found_and_not_sent(story: Story) -> None:
    for ref in ("mail", "tell_all"):
        assert len(story.lab.sent(ref)) == 1
        assert story.refs[ref].result() == story.results[ref]
    assert "assumed" in story.kinds("mail") and "intended" not in story.kinds("mail")


def an_effect_that_is_not_found_is_sent_once_settle_is_over(story: Story) -> None:
    (sent,) = story.lab.sent("unmail")
    assert epoch_of(sent.token) == story.lab.epoch().epoch
    kinds = story.kinds("unmail")
    assert kinds.index("assumed") < kinds.index("found") < kinds.index("intended")


def an_opaque_effect_waits_for_a_person(story: Story) -> None:
    assert {"publish", "unpublish"} <= story.blocked
    assert len(story.lab.sent("publish")) == 1, "a person said that it had happened"
    assert len(story.lab.sent("unpublish")) == 1, "a person said that it had not"
    assert story.refs["publish"].result() == story.results["publish"]


def a_key_that_its_provider_may_have_forgotten_too_is_not_sent_again(story: Story) -> None:
    assert "fleeting" in story.blocked
    assert len(story.lab.sent("fleeting")) == 1


def nobody_but_these_waited_for_a_person(story: Story) -> None:
    assert story.blocked == {"publish", "unpublish", "fleeting"}


def what_the_backup_holds_as_confirmed_is_returned(story: Story) -> None:
    assert len(story.lab.sent("recorded")) == 1
    assert "assumed" not in story.kinds("recorded")


def what_the_backup_holds_as_open_goes_its_usual_way(story: Story) -> None:
    for ref in ("flying", "looked"):
        assert "assumed" not in story.kinds(ref)
        assert "lost" in story.kinds(ref) or "lease_lost" in story.kinds(ref)
    assert len(story.lab.sent("looked")) == 1
    assert [r.key for r in story.lab.sent("flying")] == [story.lab.sent("flying")[0].key] * 2


def attempts_that_ran_in_the_backup_are_taken_back(story: Story) -> None:
    for ref in set(story.refs) - {"vanished"}:
        assert "lease_lost" in story.kinds(ref), ref


def nothing_is_claimed_before_the_largest_ttl_has_been_watched(story: Story) -> None:
    began, watched = story.lab.app.runtime.desk.store.rows("", "store")
    assert (began.kind, watched.kind) == (j.EpochBegan.kind, j.EpochWatched.kind)
    assert watched.at - began.at >= TTL_MS - 50
    claims = [event.at for ref in story.refs.values() for event in story.lab.events(ref, "claimed")]
    assert any(at > watched.at for at in claims)
    assert not [at for at in claims if began.at < at < watched.at]


def the_journal_is_whole_and_nothing_is_stranded(story: Story) -> None:
    story.lab.whole()
    sizes = story.lab.app.runtime.desk.store.sizes()
    assert {name: sizes[name] for name in ("ready", "inflight", "unknown")} == {"ready": 0, "inflight": 0, "unknown": 0}


def test_what_a_restore_in_the_middle_of_work_comes_to(story: Story) -> None:
    """One story, since it takes a while; each line is a test of its own."""
    each_effect_has_happened_once(story)
    a_keyed_effect_that_was_forgotten_is_sent_with_the_same_key_and_a_higher_token(story)
    an_effect_that_can_be_looked_up_is_found_and_not_sent(story)
    an_effect_that_is_not_found_is_sent_once_settle_is_over(story)
    an_opaque_effect_waits_for_a_person(story)
    a_key_that_its_provider_may_have_forgotten_too_is_not_sent_again(story)
    nobody_but_these_waited_for_a_person(story)
    what_the_backup_holds_as_confirmed_is_returned(story)
    what_the_backup_holds_as_open_goes_its_usual_way(story)
    attempts_that_ran_in_the_backup_are_taken_back(story)
    nothing_is_claimed_before_the_largest_ttl_has_been_watched(story)
    the_journal_is_whole_and_nothing_is_stranded(story)
