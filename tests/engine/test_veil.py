"""What passes the veil: every field of every command is decided, and nothing that semel goes by is changed."""

from __future__ import annotations

import dataclasses
import re
from typing import get_args

import pytest
from immutables import Map

from semel.engine.data import NotRecordable, Result
from semel.engine.keyring import Ring
from semel.engine.veil import KEPT, OWN, Veil, texts
from semel.machine import commands as e
from semel.machine import effects, reversal, tasks
from semel.machine import journal as j
from semel.machine import redaction as r
from semel.machine import task_commands as t

CARD = "4929123456789012"
# What somebody can have said, and what is looked through although it is the code's: by field, wherever it stands.
LOOKED_THROUGH = {
    "answered", "approvals", "approved", "asked", "barred", "batches", "bound", "conflict", "declined", "denied", "detail",
    "differed", "doubt", "effect", "effects", "ending_why", "error", "evidence", "payload", "reason", "renewed", "result", "sent",
    "shared", "signals", "steps", "suspended", "unrecorded", "waits", "what", "why", "word", "kinds",
}  # fmt: skip
COMMANDS = [*get_args(e.EffectCommand), *get_args(tasks.TaskCommand)]
STATES = [tasks.Task, tasks.Key, tasks.Waiting, effects.Effect, effects.Sent, effects.Evidence, reversal.Word]
PLACE = r.Place("default", "pay", "card")


@pytest.mark.parametrize("record", [*COMMANDS, *j.KINDS.values(), *STATES], ids=lambda record: record.__name__)
def test_every_field_is_looked_through_or_named(record: type) -> None:
    """A new field is looked through by itself; whoever names one as semel's own, or as kept, changes what stands here."""
    fields = {f.name for f in dataclasses.fields(record) if f.type not in ("int", "bool", "int | None", "float")}
    assert fields - LOOKED_THROUGH - OWN - KEPT == set() and not LOOKED_THROUGH & (OWN | KEPT)


def test_all_of_a_state_is_found() -> None:
    """Whatever can be a caller's, a card number in each place; and nothing of what semel and the code call things."""
    given = j.Approved("k", "ann", "d", "r3", {"card": "a1"}, name="pay")
    sent = effects.Sent(1, "t", 1, 1, "s", 0, observed=(("account", "o1"),))
    paid = effects.Effect(
        "k", "pay", {"ref": "a2"}, "d", "m", "oc", 0, ("ask",), (sent,), result="x1", unrecorded="u1",
        declined=j.Disproved("k", 1, "r1", detail={"d": "d1"}), evidence=(effects.Evidence(1, "late", "x2", "r2", 0),),
        approvals=(given,), denied=j.Denied("k", "bob", "r4"), word=reversal.Word(1, "confirmed", 1, conflict="c1"),
    )  # fmt: skip
    task = tasks.Task(
        "t", "bill", "key", {"memo": "a3"}, "fast", why="w1", suspended="w2", ending_why="w3", effects=Map({"k": paid}),
        steps=Map({"look:d:1": (777, "x3")}), waits=Map({"w:d:1": tasks.Waiting(1, "e1", 0)}), signals=Map({"e2": (777, 4929)}),
        bound=Map({"profile": "b1"}), differed=j.Mismatched("w4", observed={"account": "o2"}), ahead=Map({"k2": (given,)}),
        batches=frozenset({"b2"}),
    )  # fmt: skip
    found = str([data for _, data in texts(task, "here")])
    said = re.findall(r"\w+", "a1 a2 a3 r1 r2 r3 r4 o1 o2 oc x1 x2 x3 u1 d1 c1 w1 w2 w3 w4 e1 e2 4929 b1 b2")
    assert [text for text in said if f"'{text}'" not in found and text != "4929"] == [] and "4929" in found
    assert [own for own in ("'bill'", "'pay'", "'fast'", "'ann'", "'ask'", "'confirmed'", "777") if own in found] == []


def test_what_semel_goes_by_is_not_changed() -> None:
    veil, command = Veil(), e.MarkUnfenced("k", 1, 1, "process")
    veil.note("process")
    assert veil.over(command) is command


def test_a_text_is_cut_when_the_values_are_out_of_it() -> None:
    veil = Veil()
    veil.note(CARD)
    assert veil.error(ValueError("x" * 280 + CARD)) == "ValueError: " + "x" * 280 + "[redacte"


def test_what_was_said_is_cleaned_and_what_semel_goes_by_is_not() -> None:
    veil = Veil()
    veil.note("deadbeef")
    command = e.Disprove("sml_deadbeef", 1, 2, "it was deadbeef", True, {"card": ["deadbeef"], "deadbeef": 1})
    assert veil.over(command) == dataclasses.replace(
        command, reason="it was [redacted]", detail={"card": ["[redacted]"], "[redacted]": 1}
    )
    wait = t.Wait(1, "deadbeef", "deadbeef", 0, 0)
    assert veil.over(wait) is wait


def test_nothing_is_touched_before_a_value_was_seen() -> None:
    veil, command = Veil(), t.Fail(1, CARD, 0)
    assert not veil.active and veil.over(command) is command and not veil.shows(CARD)


@pytest.mark.parametrize("value", [None, True, "", "abc", " \n ", 123, [], {"a": "xyz"}])
def test_what_is_too_short_is_not_sought(value: object) -> None:
    veil = Veil()
    veil.note(value)
    assert not veil.active


def test_longer_values_go_first_and_each_is_sought() -> None:
    veil = Veil()
    veil.note(["12345678", "1234567890", b"passphrase", {"deep": (["nested text"],)}])
    assert veil.text("1234567890 12345678 passphrase nested text!") == "[redacted] [redacted] [redacted] [redacted]!"


def test_what_goes_round_in_circles_and_what_is_long() -> None:
    """A live object passed by mistake, a whole document: neither holds the attempt up."""

    class Node:
        def __init__(self, name: str) -> None:
            self.name, self.others = name, [self]

    first, second = Node("passphrase one"), Node("passphrase two")
    first.others, second.others = [second, first] * 20, [first, second] * 20
    document = "lorem ipsum\n" * 50_000
    veil = Veil()
    veil.note([first, document])
    assert veil.text("passphrase one, passphrase two") == "[redacted], [redacted]"
    assert veil.text(f"<{document}>") == "<[redacted]>"


def test_a_value_of_an_earlier_process_is_known_by_its_digest() -> None:
    ring = Ring.of(["5e" * 32])
    marked = {
        "card": r.marker(ring.keys[0], PLACE, CARD), "note": CARD + "0",
        "sum": r.marker(ring.keys[0], r.Place("default", "pay", "sum"), 73519648),
        "holder": r.marker(ring.keys[0], r.Place("default", "pay", "holder"), {"name": "Ada Lovelace", "pins": [551273]}),
    }  # fmt: skip
    veil = Veil()
    veil.seek(ring, "default", "pay", marked)
    assert veil.text(f"card={CARD}, sum 73519648; pin: 551273.") == "card=[redacted], sum [redacted]; pin: [redacted]."
    assert veil.data(["Ada Lovelace", 551273, 73519648, 551274, CARD + "0"]) == ["[redacted]"] * 3 + [551274, CARD + "0"]
    for elsewhere in (("acme", "pay"), ("default", "other")):
        other = Veil()
        other.seek(ring, *elsewhere, marked)
        assert other.text(CARD) == CARD
    stranger = Veil()
    stranger.seek(Ring.of(["a7" * 32]), "default", "pay", marked)
    assert not stranger.active


def test_a_result_that_does_not_fit_without_the_value() -> None:
    def pays() -> dict[str, int]: ...

    veil, result = Veil(), Result(pays, "pay")
    veil.note(73519648)
    assert veil.result(result, {"paid": 1}) == {"paid": 1}
    with pytest.raises(NotRecordable, match="without that it does not fit"):
        veil.result(result, {"paid": 73519648})


def test_the_digest_is_hmac_sha256_of_the_canonical_form_in_its_place() -> None:
    """So that others can prove it too, with the key and this page of the documentation."""
    import hashlib
    import hmac

    key = bytes.fromhex("5e" * 32)
    text = '["semel redaction 1","default","pay","card",{"a":1.5,"b":"' + CARD + '"}]'
    (said,) = r.marker(key, PLACE, {"b": CARD, "a": 1.5}).values()
    form, id, digest, *parts = said.split(":")
    assert (form, digest) == ("hmac-sha256", hmac.new(key, text.encode(), hashlib.sha256).hexdigest())
    assert id == hmac.new(key, b"semel redaction key id", hashlib.sha256).hexdigest()[:8]
    part = f'["semel redaction 1","default","pay","card/part","{CARD}"]'
    assert parts == [hmac.new(key, part.encode(), hashlib.sha256).hexdigest()[:16]]


@pytest.mark.parametrize(
    "data", [None, "semel:redacted", {"semel:redacted": 1}, {"semel:redacted": "hmac-sha256"}, {"semel:redacted": "md5:a:b"}]
)
def test_what_is_no_marker(data: object) -> None:
    assert r.mark_of(data) is None


def test_keys_are_shown_nowhere() -> None:
    ring = Ring.of(["5e" * 32])
    assert "5e5e" not in repr(ring) + str(ring) and "\\x5e" not in repr(ring) and "^^" not in repr(ring)
