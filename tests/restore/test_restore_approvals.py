"""Approvals in a store that went back (R20, R21): it may have forgotten the approval, and what was sent because of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from going_back import known_here, make
from restore_lab import RestoreLab, until

import semel


@pytest.fixture
def lab(dialect: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestoreLab]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = make(dialect, tmp_path / "store", lambda: str(request.getfixturevalue("server_url")), "approvals")
    known_here(place)
    made = RestoreLab(tmp_path / "lab", place)
    yield made
    made.close()
    place.close()


def approve(lab: RestoreLab, ref: semel.Ref[object]) -> None:
    lab.wait(ref, semel.Delivery.BLOCKED)
    (effect,) = lab.app.effects.list(task=ref)
    lab.app.review.approve(effect.key, by="ann", seen=effect.version)


@pytest.mark.only("sqlite")
def test_a_forgotten_approval_is_asked_for_again_and_what_it_let_go_is_looked_for(lab: RestoreLab) -> None:
    """Approved and sent after the backup: asked again, and only then assumed, found, and not sent twice."""
    lab.worker("approve")
    refs = [lab.enqueue(kind, kind, ref=kind) for kind in ("mailing", "charging")]
    for ref in refs:
        lab.wait(ref, semel.Delivery.BLOCKED)
    lab.back_up()
    for ref in refs:
        approve(lab, ref)
    before = [lab.result(ref) for ref in refs]
    lab.go_back()
    lab.worker("approve")
    until("the new epoch is watched", lambda: lab.has_begun() and lab.epoch().watched)
    assert [lab.events(ref, "assumed") for ref in refs] == [[], []], "nobody has approved that it may be sent again"
    for ref in refs:
        approve(lab, ref)
    assert [lab.result(ref) for ref in refs] == before
    assert [[e.kind for e in lab.events(ref) if e.kind in ("asked", "approved", "assumed")] for ref in refs] == [
        ["asked", "approved", "assumed"], ["asked", "approved", "assumed"],
    ]  # fmt: skip
    lab.proved(*refs, acts={"mail": 1, "charge": 1})
