"""Redaction: what is recorded instead of a value, what is refused, and what happens to the live value afterwards."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, SecretStr

import semel
from semel.testing import Harness

CARD, OTHER = "4929123456789012", "4929999999999999"
KEY, NEW_KEY = "5e" * 32, "a7" * 32
NOW = timedelta(0)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_REDACTION_KEY", KEY)


class Holder(BaseModel):
    holder_name: str
    codes: list[int]


def fickle(value: str, once: list[str] = []) -> str:  # noqa: B006
    once.append(value)
    if len(once) > 1:
        raise RuntimeError(f"cannot read {once[0]}")
    return value


def check(card: str) -> str:
    raise ValueError(f"{card} is no card")


Checked = Annotated[str, AfterValidator(check)]
Fickle = Annotated[str, AfterValidator(fickle)]


class Till:
    """An app whose agent pays, with the card that the test puts into `card`."""

    def __init__(self, store: str = "sqlite:///never-made.db", **how: Any) -> None:
        self.app = app = semel.App(store)
        self.card, self.note, self.occurrence = CARD, "thanks", ""
        self.sent: list[tuple[str, str]] = []
        self.answer: Callable[[str], Any] = lambda card: f"paid with {card}"
        self.fails: BaseException | None = None
        self.then: Callable[[], Any] = lambda: "done"
        self.before: Callable[[], Any] = lambda: None

        @app.effect(intent=("ref",), redact=("card",), **how)
        def pay(submission: semel.Submission, ref: str, card: str, note: str) -> str:
            self.sent.append((ref, card))
            return str(self.answer(card))

        @app.effect(intent=("text",))
        def post(submission: semel.Submission, text: str) -> str:
            self.sent.append(("post", text))
            return text

        @app.step()
        def look(what: str) -> str:
            return f"looked at {what}"

        @app.task(retry=semel.Retry(max_attempts=1))
        def bill(ref: str, memo: str = "") -> str:
            self.before()
            call = pay.using(occurrence=self.occurrence) if self.occurrence else pay
            paid = call(ref, self.card, self.note)
            if self.fails is not None:
                raise self.fails
            return f"{paid}; {self.then()}"

        self.pay, self.post, self.look, self.bill = pay, post, look, bill

    def all_that_is_stored(self) -> str:
        """Every row of every task's journal, and what the views say."""
        tasks = self.app.tasks.list(limit=1000)
        rows = [str(event) for task in tasks for event in self.app.journal(task.ref)]
        return "\n".join([*rows, *map(str, tasks), *map(str, self.app.effects.list())])


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def h(till: Till) -> Iterator[Harness]:
    with Harness(till.app) as harness:
        yield harness


def misuse(says: str, call: Callable[[], object]) -> str:
    with pytest.raises(semel.Misuse, match=says) as caught:
        call()
    assert CARD not in str(caught.value)
    return str(caught.value)


def ended(till: Till, h: Harness, *args: str, key: str = "t1") -> semel.TaskView:
    ref = till.bill.using(key=key).enqueue("r1", *args)
    h.run()
    return till.app.tasks.get(ref)


# --- what is recorded ---


def test_the_call_is_made_with_the_value_and_recorded_without(till: Till, h: Harness) -> None:
    task = ended(till, h)
    assert till.sent == [("r1", CARD)]
    (paid,) = till.app.effects.list()
    assert paid.result == "paid with [redacted]" and task.ref.result() == "paid with [redacted]; done"
    marker = paid.args["card"]["semel:redacted"].split(":")
    assert marker[0] == "hmac-sha256" and len(marker[1]) == 8 and len(marker[2]) == 64 and paid.args["note"] == "thanks"
    assert CARD not in till.all_that_is_stored() and "thanks" in till.all_that_is_stored()


def test_equality_is_proved_and_no_other_value_is_equal(till: Till, h: Harness) -> None:
    ended(till, h)
    (paid,) = till.app.effects.list()
    proves = till.app.effects.proves
    assert proves(paid.key, "card", CARD)
    assert not any(proves(paid.key, "card", other) for other in (OTHER, CARD + " ", int(CARD), None, [CARD]))
    misuse("was not redacted: it is on record in clear", lambda: proves(paid.key, "note", "thanks"))
    misuse("has no argument 'cards' on record", lambda: proves(paid.key, "cards", CARD))


def test_the_digest_is_of_the_key_the_tenant_the_effect_and_the_field() -> None:
    app, seen = semel.App("sqlite:///never-made.db"), set()

    def declare(name: str) -> Any:
        @app.effect(intent=("ref",), redact=("card", "spare"), name=name)
        def pay(submission: semel.Submission, ref: str, card: str, spare: str) -> None: ...

        return pay

    one, two = declare("one"), declare("two")
    with Harness(app):
        for tenant in ("a", "b"):
            with app.work("w", kind="k", tenant=tenant):
                one("r", CARD, CARD)
                two("r", CARD, CARD)
            for effect in app.effects.list(tenant=tenant):
                seen |= {effect.args["card"]["semel:redacted"], effect.args["spare"]["semel:redacted"]}
    assert len(seen) == 8


def test_what_a_handler_says_after_the_call_is_recorded_without_the_value(till: Till, h: Harness) -> None:
    till.fails = ValueError("x" * 278 + CARD)  # half of it would be left, were the text cut first
    ended(till, h)
    assert "xx[redacted" in till.all_that_is_stored() and CARD[:8] not in till.all_that_is_stored()


def test_as_errors_and_addresses_spell_it(till: Till, h: Harness) -> None:
    till.card = 'p"ss wörd/\n1'
    spelt = (repr(till.card), json.dumps(till.card), "p%22ss+w%C3%B6rd%2F%0A1", "p%22ss%20w%C3%B6rd/%0A1")
    till.fails = ValueError(" | ".join(spelt))
    assert ended(till, h).why.count("[redacted]") == 4
    assert "ss" not in ended(till, h).why


def test_a_short_value_is_sought_as_a_word_and_a_number_as_a_number() -> None:
    app, said = semel.App("sqlite:///never-made.db"), "pin=1234, order 991234, sum 512.25 of 5512.25"

    @app.effect(intent=("ref",), redact=("pin", "sum"))
    def pay(submission: semel.Submission, ref: str, pin: str, sum: float) -> dict[str, Any]:
        return {"said": said, "count": 1234, "sum": 512.25}

    with Harness(app):
        with app.work("w", kind="k"):
            paid = pay("r", "1234", 512.25)
        assert paid == {"said": "pin=[redacted], order 991234, sum [redacted] of 5512.25", "count": 1234, "sum": "[redacted]"}


def test_a_result_that_is_none_without_the_value_is_not_recorded() -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",), redact=("account",))
    def pay(submission: semel.Submission, ref: str, account: int) -> int:
        return account

    with Harness(app):
        with app.work("w", kind="k"):
            misuse("happened and is confirmed, but its result cannot be recorded", lambda: pay("r", 73519648))
        (paid,) = app.effects.list()
        assert paid.state == "confirmed" and paid.result is None and "73519648" not in str(app.journal(paid.key))


def test_values_within_a_model_are_kept_out_and_the_names_are_not() -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",), redact=("holder",))
    def pay(submission: semel.Submission, ref: str, holder: Holder) -> str:
        return f"holder_name is {holder.holder_name}, codes {holder.codes}"

    with Harness(app):
        with app.work("w", kind="k"):
            assert pay("r", Holder(holder_name="Ada L.", codes=[73519648])) == "holder_name is [redacted], codes [[redacted]]"
        (paid,) = app.effects.list()
        assert app.effects.proves(paid.key, "holder", {"holder_name": "Ada L.", "codes": [73519648]})


def test_semels_own_errors_about_the_call_do_not_say_it(till: Till, h: Harness) -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",), redact=("card",), approve=lambda card: bool(check(card)))
    def pay(submission: semel.Submission, ref: str, card: str) -> str:
        return "paid"

    with Harness(app), app.work("w", kind="k"):
        assert "ValueError: [redacted] is no card" in misuse("its approve predicate raised", lambda: pay("r", CARD))
        misuse("got an unexpected keyword", lambda: pay("r", CARD, cart=CARD))
        misuse("is not a str", lambda: pay("r", [CARD]))

    @app.effect(intent=("ref",), redact=("card",))
    def give(submission: semel.Submission, ref: str, card: Checked) -> str:
        return "given"

    with Harness(app), app.work("w", kind="k"):
        assert "[redacted] is no card" in misuse("card is not a", lambda: give("r", CARD))


def test_no_log_record_holds_it(till: Till, h: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """A result's own type breaks the attempt, with the value in its words; and its late answer does."""
    caplog.set_level(logging.DEBUG)

    @till.app.task(retry=semel.Retry(max_attempts=1))
    def breaks(ref: str) -> Fickle:
        till.pay(ref, CARD, "thanks")
        return f"{CARD} is bad"

    breaks.using(key="b1").enqueue("b1")
    h.run()
    assert "the attempt broke (RuntimeError)" in caplog.text and CARD not in caplog.text


def test_what_the_provider_says_is_recorded_without_it(till: Till, h: Harness) -> None:
    def no(card: str) -> str:
        raise semel.NotDone(f"{card} is stolen", retry=False, detail={"number": card})

    till.answer = no
    assert "NotDone: [redacted] is stolen" in ended(till, h).why
    (disproved,) = [event.body for event in till.app.journal(till.app.effects.list()[0].key) if event.kind == "disproved"]
    assert (disproved["reason"], disproved["detail"]) == ("[redacted] is stolen", {"number": "[redacted]"})


def test_what_a_lookup_says_is_recorded_without_it(tmp_path: Path) -> None:
    def find(submission: semel.Submission) -> semel.Verdict:
        return semel.Conflict(f"somebody paid with {CARD}")

    till = Till(f"sqlite:///{tmp_path}/till.db", recovery=semel.Lookup(find, settle=NOW))
    till.answer = lambda card: 1 / 0
    with pytest.raises(semel.Unsettled, match=r"conflict: somebody paid with \[redacted\]"), till.app.work("w", kind="k"):
        till.pay("r1", CARD, "thanks")
    assert CARD not in till.all_that_is_stored()
    till.app.close()


# --- what is refused ---


def test_at_import_whatever_would_need_the_value_from_the_record() -> None:
    app = semel.App("sqlite:///never-made.db")

    def find(submission: semel.Submission, card: str) -> semel.Verdict:
        return semel.NotFound()

    def pay(submission: semel.Submission, ref: str, card: str) -> str:
        return "paid"

    def declare(**how: Any) -> Callable[[], object]:
        return lambda: app.effect(**{"intent": ("ref",), "redact": ("card",), **how})(pay)

    misuse("redact names 'cart', which is no parameter of it", declare(redact=("cart",)))
    misuse(r"redact must be a tuple of parameter names, not 'card'; write redact=\('card',\)", declare(redact="card"))
    misuse("card is redacted and in its intent", declare(intent=("ref", "card")))
    misuse("lookup find asks for 'card', which is redacted", declare(recovery=semel.Lookup(find, settle=NOW)))
    for recovery in (semel.Resend(within=None), semel.Repeat(), [semel.Resend(within=timedelta(hours=1)), semel.Ask()]):
        misuse("sends the recorded call again, and of that card is redacted; use Lookup or Ask", declare(recovery=recovery))


def test_without_a_key_before_anything_is_accepted(till: Till, h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    till.bill.using(key="t1").enqueue("r1")
    for wrong in ("", "77" * 31, "not a key at all, but long enough to be taken for one", KEY + ",zz"):
        monkeypatch.setenv("SEMEL_REDACTION_KEY", wrong)
        for call in (h.run, lambda: till.bill.using(key="t2").run("r2"), lambda: till.app.work("w", kind="k").__enter__()):
            said = misuse("secrets.token_hex", call)
            assert not wrong or wrong not in said
    assert till.sent == [] and [task.key for task in till.app.tasks.list()] == ["t1"]


def test_keys_in_hex_and_in_either_base64_are_the_same_key(till: Till, h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    raw = bytes(range(220, 256))
    kinds = set()
    for text in (raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode().rstrip("=")):
        monkeypatch.setenv("SEMEL_REDACTION_KEY", text)
        till.app.runtime._ring = None
        ended(till, h, key=f"t{len(till.sent)}")
        kinds = {str(effect.args["card"]) for effect in till.app.effects.list()}
    assert len(till.sent) == 3 and len(kinds) == 1


def test_an_ordinary_argument_that_looks_like_a_marker() -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",))
    def pay(submission: semel.Submission, ref: str, card: dict[str, str]) -> str:
        return "paid"

    with Harness(app), app.work("w", kind="k"):
        for fake in ("hmac-sha256:00000000:00", "x"):
            misuse("by which semel knows what it redacted itself", lambda fake=fake: pay("r", {"semel:redacted": fake}))
        assert pay("r", {"semel": "redacted"}) == "paid"


def test_a_type_that_hides_itself() -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",), redact=("card",))
    def pay(submission: semel.Submission, ref: str, card: SecretStr) -> str:
        return "paid"

    with Harness(app), app.work("w", kind="k"):
        misuse("card does not read the same again, so nothing could be proved", lambda: pay("r", SecretStr(CARD)))


@pytest.mark.parametrize(
    ("place", "arrange"),
    [
        ("the task's argument memo", lambda till: None),
        ("its argument note", lambda till: setattr(till, "note", f"with {CARD}")),
        ("its occurrence", lambda till: setattr(till, "occurrence", f"for {CARD}")),
        ("the result of step look", lambda till: setattr(till, "before", lambda: till.look("x" + CARD))),
        ("the arguments of effect post", lambda till: setattr(till, "before", lambda: till.post(f"is {CARD}"))),
    ],
)
def test_a_value_that_is_in_clear_elsewhere(till: Till, h: Harness, place: str, arrange: Callable[[Till], None]) -> None:
    arrange(till)
    task = ended(till, h, *([f"card {CARD}"] if "memo" in place else []))
    assert f"effect pay: a redacted value is in clear in {place}" in task.why and "pass a reference" in task.why
    assert ("r1", CARD) not in till.sent
    assert [effect.name for effect in till.app.effects.list()] == (["post"] if "post" in place else [])


def test_a_value_in_a_signal_or_only_in_a_steps_arguments(till: Till, h: Harness) -> None:
    app = till.app

    @app.step()
    def known(card: str) -> bool:
        return True

    till.before = lambda: known(CARD)
    assert "in clear in step known: an argument" in ended(till, h).why
    till.before = lambda: semel.wait_for("card")
    ref = till.bill.using(key="t2").enqueue("r2")
    app.signal(ref, "card", {"number": CARD})
    h.run()
    assert "in clear in the payload of signal card" in app.tasks.get(ref).why and till.sent == []


OF_MANY = (("t8", ("r8",)), ("t9", ("r9", CARD)))


@pytest.mark.parametrize(
    ("says", "then"),
    [
        ("a redacted value is in clear in its argument text", lambda till: till.post(f"is {CARD}")),
        ("step look: its result holds what an effect of this attempt redacted", lambda till: till.look("")),
        ("step look: an argument holds what", lambda till: till.look(CARD)),
        ("task bill: an argument, or its key, holds what", lambda till: till.bill.using(key="t9").enqueue("r9", CARD)),
        (
            "task bill: an argument, or its key, holds what",
            lambda till: till.bill.enqueue_many([till.bill.using(key=key).call(*args) for key, args in OF_MANY]),
        ),
        ("the payload of 'card' holds what", lambda till: till.app.signal(semel.current().ref, "card", {"number": CARD})),
        ("task bill: an argument, or its key, holds what", lambda till: till.bill.using(key=CARD).enqueue("r9")),
    ],
)
def test_what_would_be_put_on_record_after_the_call(till: Till, h: Harness, says: str, then: Callable[[Till], Any]) -> None:
    till.card = "looked at " if "its result" in says else CARD
    till.then = lambda: then(till)
    assert says in ended(till, h).why
    assert len(till.app.effects.list()) == 1 and len(till.app.tasks.list()) == 1 and CARD not in till.all_that_is_stored()


def test_what_was_done_before_its_code_said_redact_gives_its_record(tmp_path: Path) -> None:
    """Whatever is in clear there already: nothing is done again, and nothing is stranded."""
    before, after = semel.App(f"sqlite:///{tmp_path}/till.db"), Till(f"sqlite:///{tmp_path}/till.db")

    @before.effect(intent=("ref",))
    def pay(submission: semel.Submission, ref: str, card: str, note: str) -> str:
        return f"paid with {card}"

    with pytest.raises(semel.NotDone), before.work("w", kind="k"):
        pay("r1", CARD, "thanks")
        raise semel.NotDone("to be continued")
    before.close()
    with after.app.work("w", kind="k"):
        assert after.pay("r1", CARD, "thanks") == f"paid with {CARD}"
        with pytest.raises(semel.Misuse, match="in clear in the arguments of effect pay"):
            after.pay("r2", CARD, "thanks")
    assert after.sent == []
    after.app.close()


# --- the same key again ---


def test_the_same_value_is_the_same_call_and_another_is_other_words(till: Till, h: Harness) -> None:
    with till.app.work("w", kind="k"):
        assert till.pay("r1", CARD, "a") == till.pay("r1", CARD, "a") == "paid with [redacted]"
        with pytest.raises(semel.Refused, match="already_done"):
            till.pay("r1", OTHER, "a")
    assert till.sent == [("r1", CARD)] and OTHER not in till.all_that_is_stored()


def test_a_material_value_may_not_change() -> None:
    till = Till(material=("card",))
    with Harness(till.app), till.app.work("w", kind="k"):
        till.pay("r1", CARD, "a")
        with pytest.raises(semel.Refused, match="intent_changed"):
            till.pay("r1", OTHER, "a")
    assert till.sent == [("r1", CARD)]


@pytest.mark.parametrize(
    ("keys", "same"), [(NEW_KEY, False), (f"{NEW_KEY},{KEY}", True), (f"{KEY},{NEW_KEY}", True)], ids=["lost", "kept", "in use"]
)
def test_after_a_change_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, same: bool) -> None:
    """With the old key behind the new one all is as before; without it the value is another, as far as anybody can tell."""
    till = Till(f"sqlite:///{tmp_path}/till.db", material=("card",))
    with till.app.work("w", kind="k"):
        till.pay("r1", CARD, "a")
    till.app.close()
    monkeypatch.setenv("SEMEL_REDACTION_KEY", keys)
    (paid,) = till.app.effects.list()
    with till.app.work("w", kind="k"):
        if same:
            assert till.pay("r1", CARD, "a") == "paid with [redacted]" and till.app.effects.proves(paid.key, "card", CARD)
            with pytest.raises(semel.Refused, match="intent_changed"):
                till.pay("r1", OTHER, "a")
        else:
            with pytest.raises(semel.Refused, match="intent_changed"):
                till.pay("r1", CARD, "a")
            misuse(
                "which is not in SEMEL_REDACTION_KEY; write the old key behind",
                lambda: till.app.effects.proves(paid.key, "card", 1),
            )
    assert till.sent == [("r1", CARD)]
    till.app.close()


@pytest.mark.parametrize("scope", ["task", "tenant"])
@pytest.mark.parametrize("url", ["sqlite", "postgres"])
def test_after_a_change_of_keys_what_was_pruned_or_is_another_tasks_is_the_same_value_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, scope: str, url: str
) -> None:
    place = f"sqlite:///{tmp_path}/till.db" if url == "sqlite" else str(request.getfixturevalue("database"))
    till = Till(place, material=("card",), scope=scope)
    with till.app.work("w", kind="k"):
        till.pay("r1", CARD, "a")
    till.app.close()
    monkeypatch.setenv("SEMEL_REDACTION_KEY", f"{NEW_KEY},{KEY}")
    for prune in (False, True):
        if prune:
            till.app.review.prune(older_than=timedelta(0), export=tmp_path / "rows", by="ann")
        with till.app.work("w" if scope == "task" else f"other {prune}", kind="k"):
            assert till.pay("r1", CARD, "a") == "paid with [redacted]"
            with pytest.raises(semel.Refused, match="intent_changed"):
                till.pay("r1", OTHER, "a")
    assert till.sent == [("r1", CARD)] and CARD not in (tmp_path / "rows").read_text()
    till.app.close()


# --- approvals ---


def asked(till: Till, h: Harness) -> tuple[semel.Ref[str], semel.EffectView]:
    ref = till.bill.using(key="t1").enqueue("r1")
    h.run()
    (waiting,) = till.app.review.pending()
    return ref, waiting


def test_approved_the_live_value_is_sent_if_it_is_the_one_that_was_asked_for() -> None:
    till = Till(approve=True)
    with Harness(till.app) as h:
        ref, waiting = asked(till, h)
        assert set(waiting.args["card"]) == {"semel:redacted"}
        till.note = "in other words"
        till.app.review.approve(waiting.key, by="ann")
        h.run()
        assert till.sent == [("r1", CARD)] and ref.result() == "paid with [redacted]; done"
        assert till.app.effects.get(waiting.key).args["note"] == "thanks"


def test_approved_another_value_is_not_sent_until_it_is_the_one_again() -> None:
    till = Till(approve=True)
    with Harness(till.app) as h:
        ref, waiting = asked(till, h)
        till.app.review.approve(waiting.key, by="ann")
        till.card = OTHER
        h.run()
        task = till.app.tasks.get(ref)
        assert task.delivery == "blocked" and "its redacted card is not the one that was approved" in task.why
        assert till.sent == [] and OTHER not in till.all_that_is_stored()
        till.card = CARD
        till.app.review.replay(ref, by="ann")
        h.run()
        assert till.sent == [("r1", CARD)]


def test_approved_under_a_key_that_is_lost_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    till = Till(approve=True)
    with Harness(till.app) as h:
        ref, waiting = asked(till, h)
        till.app.review.approve(waiting.key, by="ann")
        monkeypatch.setenv("SEMEL_REDACTION_KEY", NEW_KEY)
        till.app.runtime._ring = None
        h.run()
        assert "which is not in SEMEL_REDACTION_KEY any more: add it behind a comma" in till.app.tasks.get(ref).why
        assert till.sent == []
        monkeypatch.setenv("SEMEL_REDACTION_KEY", f"{NEW_KEY},{KEY}")
        till.app.runtime._ring = None
        till.app.review.replay(ref, by="ann")
        h.run()
        assert till.sent == [("r1", CARD)]


def test_an_edit_leaves_the_redacted_argument_alone() -> None:
    till = Till(approve=True)
    with Harness(till.app) as h:
        _, waiting = asked(till, h)
        approve = till.app.review.approve
        misuse("is redacted: only the agent's own call knows it", lambda: approve(waiting.key, by="ann", args={"card": OTHER}))
        fake = {"semel:redacted": "hmac-sha256:00000000:00"}
        misuse("is redacted: only the agent's own call knows it", lambda: approve(waiting.key, by="ann", args={"note": fake}))
        misuse(
            "holds a value that was redacted in this task", lambda: approve(waiting.key, by="ann", args={"note": f"to {CARD}"})
        )
        approve(waiting.key, by="ann", args={"note": "edited"})
        h.run()
        assert till.sent == [("r1", CARD)] and till.app.effects.get(waiting.key).args["note"] == "edited"


# --- the code has changed ---


def test_what_was_redacted_is_not_sent_again_by_code_that_would_resend(tmp_path: Path) -> None:
    """The marker is no value, whatever the parameter's type is now."""
    sent: list[Any] = []

    def find(submission: semel.Submission) -> semel.Verdict:
        return semel.Unavailable("not now", retry_after=timedelta(minutes=1))

    def declare(**how: Any) -> tuple[semel.App, Any]:
        app = semel.App(f"sqlite:///{tmp_path}/till.db")

        @app.effect(intent=("ref",), **how)
        def pay(submission: semel.Submission, ref: str, card: Any) -> str:
            sent.append(card)
            raise RuntimeError("nobody knows")

        return app, pay

    before, pay = declare(redact=("card",), recovery=semel.Lookup(find, settle=NOW))
    with pytest.raises(semel.Unsettled), before.work("w", kind="k", wait=NOW):
        pay("r", CARD)
    before.close()
    after, _ = declare(recovery=semel.Resend(within=None))
    says = "cannot be sent again: effect pay: the recorded card is redacted"
    with pytest.raises(semel.Unsettled, match=says), after.work("w", kind="k"):
        pass
    assert sent == [CARD]
    after.close()
