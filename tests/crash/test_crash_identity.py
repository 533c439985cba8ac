"""Identity across kills: what was bound outlives its worker, and nobody else's login sends, or settles, anything."""

from __future__ import annotations

from lab import Lab, until

import semel


def as_whom(lab: Lab, profile: str, login: str) -> None:
    (lab.room / "profile").write_text(profile)
    (lab.room / "login").write_text(login)


def held(lab: Lab, ref: semel.Ref[str], says: str) -> None:
    """Wait until the task is blocked for its identity."""
    lab.wait(ref, semel.Delivery.BLOCKED)
    assert lab.task(ref).why.startswith("identity_mismatch: ") and says in lab.task(ref).why, lab.task(ref).why


def test_a_killed_worker_s_task_goes_on_only_as_whom_it_was_bound(lab: Lab) -> None:
    as_whom(lab, "p1", "alice")
    lab.arm("bound", "after.buy.1")
    first = lab.worker("shopper")
    ref = lab.enqueue("shop", "r1", ref="r1")
    lab.arrived("bound")
    until("what was bound is on record, before any effect", lambda: lab.events(ref, "bound"))
    first.kill()

    as_whom(lab, "p2", "alice")  # another machine, which has another profile
    second = lab.worker("shopper")
    held(lab, ref, "profile is bound to 'p1', and this attempt binds 'p2'")
    as_whom(lab, "p1", "bob")
    lab.app.review.replay(ref, by="ann")
    until("as bob it is held too", lambda: "'bob' is observed" in lab.task(ref).why)
    held(lab, ref, "account is bound to 'alice', and 'bob' is observed")
    assert not lab.acts() and not lab.events(ref, "intended")

    as_whom(lab, "p1", "alice")
    lab.app.review.replay(ref, by="ann")
    assert lab.arrived("after.buy.1") == second.pid
    asked = len(lab.provider.requests())
    as_whom(lab, "p1", "bob")  # logged out while the order is unknown
    second.kill()
    lab.worker("shopper")
    held(lab, ref, "account is bound to 'alice', and 'bob' is observed")
    assert len(lab.provider.requests()) == asked, "it was looked up in somebody else's orders"

    as_whom(lab, "p1", "alice")
    lab.app.review.replay(ref, by="ann")
    assert lab.result(ref) == lab.acts("buy")[0].id
    lab.proved(ref, acts={"buy": 1})
    (sent,) = lab.events(ref, "intended")
    assert sent.body["observed"] == {"profile": "p1", "account": "alice"}
