"""What passes the veil: every field of every command is decided, and nothing that semel goes by is changed."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from semel.engine.data import NotRecordable, Result
from semel.engine.keyring import Ring
from semel.engine.veil import SAID, Veil
from semel.machine import commands as e
from semel.machine import redaction as r
from semel.machine import task_commands as t
from semel.machine import tasks

CARD = "4929123456789012"
# Texts and data of commands that are semel's own, or the code's: keys, names, ids, digests; and arguments, which hold markers.
OWN = {
    "key", "name", "args", "digest", "material", "task", "session", "occurrence", "recovery", "unfenced", "said", "intent", "how",
    "verdict", "by", "proof", "code", "event", "from_step", "sender", "usd", "hash", "ahead", "batch", "at_most", "watched",
}  # fmt: skip
COMMANDS = [*get_args(e.EffectCommand), *get_args(tasks.TaskCommand)]
PLACE = r.Place("default", "pay", "card")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_field_of_a_command_is_decided(command: type) -> None:
    """A new field that can hold a text fails here until somebody says whether it may hold what somebody said."""
    texts = {f.name for f in dataclasses.fields(command) if "str" in str(f.type) or "Json" in str(f.type)}
    assert texts - SAID - (OWN | ({"why"} if command is e.MarkUnfenced else set())) == set()


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
