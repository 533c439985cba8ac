"""Where a person must be asked, may be, or need not: by what is hurt, and by what is near it."""

from __future__ import annotations

from semel.testing.crashtest.points import Boundary, plan


def effect(name: str, rung: str, began: float = 0.0, ended: float = 0.0) -> Boundary:
    return Boundary("effect", name, 1, f"key of {name}", rung=rung, began=began, ended=ended)


def step(name: str) -> Boundary:
    return Boundary("step", name, 1, f"key of {name}")


def asked(*boundaries: Boundary, postgres: bool = False, unfenced: bool = False) -> dict[tuple[str, str], bool | None]:
    points = plan(boundaries, postgres=postgres, unfenced=unfenced)
    assert len({(point.how, point.at) for point in points}) == len(points)
    return {(point.at.name if point.at else "", point.how): point.asks for point in points}


def test_only_what_nothing_else_can_tell_is_asked_of_a_person() -> None:
    found = asked(effect("charge", "resend", 1, 2), effect("mail", "lookup", 3, 4), step("draft"), effect("post", "ask", 5, 6))
    for how in ("killed_before", "killed_during", "killed_after", "frozen_before", "frozen_during"):
        assert [found[name, how] for name in ("charge", "mail", "post")] == [False, False, True]
    assert [found[name, "killed_recorded"] for name in ("charge", "mail", "post")] == [False, None, False]


def test_after_a_restore_a_person_is_asked_of_all_that_may_have_been_forgotten() -> None:
    found = asked(
        effect("post", "ask", 1, 2), step("draft"), effect("mail", "lookup", 3, 4), effect("tell", "ask", 5, 6), step("x")
    )
    assert [found[name, "restored"] for name in ("post", "mail", "tell")] == [True, True, True]
    found = asked(effect("post", "ask", 1, 2), effect("mail", "lookup", 3, 4), step("draft"), effect("charge", "resend", 5, 6))
    assert [found[name, "restored"] for name in ("post", "mail", "charge")] == [True, None, False], (
        "its outcome rode with the next"
    )


def test_what_shares_a_transaction_may_be_asked_about() -> None:
    """R6: an outcome, a step's result and the next intent; whichever is cut off leaves an effect unknown."""
    found = asked(effect("mail", "lookup", 1, 2), effect("post", "ask", 3, 4), step("draft"), effect("tell", "ask", 5, 6))
    assert found["mail", "killed_recorded"] is None
    assert found["draft", "killed_recording"] is None
    assert found["draft", "killed_recorded"] is None
    assert found["tell", "killed_within"] is None, "a step between them may take no time"
    assert asked(effect("post", "resend", 1, 2), effect("mail", "lookup", 3, 4))["mail", "killed_within"] is False


def test_what_is_under_way_beside_it_may_be_asked_about() -> None:
    found = asked(effect("mail", "lookup", 1, 4), effect("charge", "resend", 2, 3), effect("post", "ask", 3.5, 5))
    assert found["mail", "killed_before"] is None
    assert found["charge", "killed_before"] is False


def test_unfenced_a_lookup_may_need_a_person() -> None:
    found = asked(effect("mail", "lookup", 1, 2), unfenced=True)
    assert found["mail", "killed_before"] is None
    assert asked(effect("charge", "resend", 1, 2), unfenced=True)["charge", "killed_before"] is False


def test_each_store_has_its_own_points() -> None:
    only_postgres = {"cut_intent_before", "cut_intent_after", "cut_record_before", "cut_record_after", "terminated"}
    one = effect("charge", "resend", 1, 2)
    assert {how for _, how in asked(one, postgres=True)} - {how for _, how in asked(one)} == only_postgres
    assert {how for _, how in asked(one)} - {how for _, how in asked(one, postgres=True)} == {"killed_within"}
    assert {how for _, how in asked()} == {"killed_returned", "killed_finished"}
