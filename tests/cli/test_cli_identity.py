"""What is bound, what was observed and what differs, in `semel show`, `why`, `unknown` and for programs; binding anew."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from pathlib import Path

import pytest
from cli_office import Office

import semel


def find_order(submission: semel.Submission) -> semel.Verdict:
    return semel.NotFound()


class Till:
    """An office whose store holds one order of direct mode. page: who is logged in."""

    def __init__(self, office: Office) -> None:
        self.office, self.sent = office, list[str]()
        self.page = {"account": "alice", "target": "shop.example"}
        self.lose = False
        self.recovery: semel.Recovery = semel.Ask()
        self.look = lambda: self.page

    def order(self) -> None:
        """Enter the work once."""
        app = semel.App(self.office.url)

        @app.effect(intent=("item",), identity=lambda: self.look(), recovery=self.recovery)
        def buy(submission: semel.Submission, item: str) -> str:
            self.sent.append(item)
            if self.lose:
                raise ConnectionResetError("cut")
            return f"order of {item}"

        with contextlib.suppress(semel.Unsettled), app.work("o1", kind="shopping"):
            semel.bind(account="alice", target="shop.example")
            buy("book")
        app.close()


@pytest.fixture
def till(tmp_path: Path) -> Till:
    return Till(Office(tmp_path))


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_show_and_why_say_what_is_bound_what_was_observed_and_what_differs(till: Till) -> None:
    till.page = {"account": "bob", "target": "shop.example"}
    till.order()
    shown = till.office.look("show", "o1").stdout
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    for said in (
        "bound account='alice', target='shop.example'", "observed account='bob', target='shop.example'",
        "differs another identity for buy: account is bound to 'alice', and 'bob' is observed",
        "blocked identity_mismatch: another identity for buy", "semel replay", "--identity NAME=VALUE",
    ):  # fmt: skip
        assert said in words(shown), shown
    told = words(till.office.look("why", "o1").stdout)
    assert told.startswith("BLOCKED shopping o1 waits for a person: identity_mismatch: another identity for buy")
    assert "The task is bound to an identity; it acts as nobody else from now on." in told
    assert "Attempt 1 would act as somebody else, and may start nothing more:" in told
    assert '{"account": "bob", "target": "shop.example"}' in told and "Next: log in as what is bound" in told
    data = till.office.json("show", "o1")["identity"]
    assert data["bound"] == {"account": "alice", "target": "shop.example"}
    assert data["differs"]["observed"] == {"account": "bob", "target": "shop.example"} and data["differs"]["effect"] == "buy"
    assert till.office.json("why", "o1")["identity"] == data and not till.sent


def test_a_replay_goes_on_and_one_that_binds_anew_is_on_record(till: Till) -> None:
    till.page = {"account": "alice", "target": "shop2.example"}
    till.order()
    assert "names no value" in till.office.look("replay", "o1", "--by", "ann", "--identity", "target", code=2).output
    wrong = till.office.look("replay", "o1", "--by", "ann", "--identity", "traget=x", code=1).output
    assert "'traget' is not bound to the task" in words(wrong)
    till.office.look("replay", "o1", "--by", "ann", "--identity", "target=shop2.example")
    till.order()  # its code still binds the old target
    assert "binds account='alice', target='shop.example'" in words(till.office.look("show", "o1").stdout)
    assert "target is bound to 'shop2.example', and this attempt binds 'shop.example'" in words(
        till.office.look("show", "o1").stdout
    )
    till.page = {"account": "alice", "target": "shop.example"}
    till.office.look("replay", "o1", "--by", "ann", "--identity", "target=shop.example", "--identity", "account=alice")
    till.order()
    assert till.sent == ["book"]
    told = words(till.office.look("why", "o1").stdout)
    assert "ann says that the task acts as another from now on." in told
    assert till.office.json("show", "o1")["identity"] == {
        "bound": {"account": "alice", "target": "shop.example"}, "differs": None,
    }  # fmt: skip
    (effect,) = till.office.json("show", "o1")["effects"]
    assert effect["submissions"][0]["observed"] == {"account": "alice", "target": "shop.example"}
    assert "as account='alice', target='shop.example'" in words(till.office.look("show", "o1").stdout)
    assert "as account='alice', target='shop.example'" in words(till.office.look("why", effect["key"]).stdout)


def test_what_could_not_be_observed_is_said_too(till: Till) -> None:
    till.page = {}
    till.order()
    assert "observed nothing" in words(till.office.look("show", "o1").stdout)
    till.office.look("replay", "o1", "--by", "ann")
    till.page = None  # type: ignore[assignment]
    till.order()
    shown = words(till.office.look("show", "o1").stdout)
    assert "observed (it could not be)" in shown and "its function returned NoneType" in shown


def test_an_unknown_effect_that_is_held_asks_for_the_right_login(till: Till) -> None:
    till.lose, till.recovery = True, semel.Lookup(find_order, settle=timedelta(0))
    pages = [till.page, {"account": "bob", "target": "shop.example"}]
    till.look = lambda: pages.pop(0) if len(pages) > 1 else pages[0]
    till.order()
    for shown in (
        till.office.look("unknown").stdout,
        till.office.look("show", "o1").stdout,
        till.office.look("why", "o1").stdout,
    ):
        assert "the right login, then semel replay" in words(shown), shown
    (unknown,) = till.office.json("unknown")["unknown"]
    assert unknown["needs"]["who"] == "person" and "'bob' is observed" in unknown["needs"]["text"]
    assert till.sent == ["book"]
