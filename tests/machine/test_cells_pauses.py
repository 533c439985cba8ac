"""What is paused: every state x command, and that a fold in parts is the fold of all."""

from __future__ import annotations

import pytest

from semel.machine import journal as j
from semel.machine import pauses
from semel.machine.pauses import ALL, KIND, QUEUE, Halt, Pause, Pauses, Resume, Scope
from semel.model import Refusal

SCOPES = (Scope(ALL), Scope(QUEUE, "billing"), Scope(KIND, "bill"))


def rows(*events: j.Happened) -> tuple[j.Row, ...]:
    return j.seal(
        events, tenant=pauses.TENANT, stream=pauses.STREAM, seq=0, previous=j.GENESIS, actor="person:ann", token=0, at=7, id="i"
    )


def outcome(state: Pauses, command: pauses.Command) -> str:
    decided = pauses.decide(state, command)
    return f"!{decided.code}" if isinstance(decided, Refusal) else "+".join(event.kind for event in decided.events)


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_each_state_and_command(scope: Scope) -> None:
    free = Pauses()
    held = pauses.fold(rows(j.Paused(*scope, "why")))
    again = pauses.fold(rows(j.Paused(*scope), j.Resumed(*scope)))
    for other in SCOPES:
        same = other == scope
        assert outcome(free, Halt(other)) == outcome(again, Halt(other)) == "paused"
        assert outcome(free, Resume(other)) == outcome(again, Resume(other)) == "!stale_view"
        assert outcome(held, Halt(other)) == ("!stale_view" if same else "paused")
        assert outcome(held, Resume(other)) == ("resumed" if same else "!stale_view")


def test_what_is_paused_is_neither_looked_for_nor_begun() -> None:
    ann = [Pause(scope, "person:ann", "why", 7) for scope in SCOPES]
    of = [pauses.fold(rows(j.Paused(*scope, "why"))) for scope in SCOPES]
    queues, kinds = ("billing", "mail"), [("charge", "bill"), ("send",)]
    every = ("charge", "bill", "send")
    assert [(one.queues(queues), one.kinds(kinds)) for one in of] == [
        ((), ()), (("mail",), every), (queues, ("send",)),
    ]  # fmt: skip
    assert of[2].of("mail", "charge", "bill") == ann[2] and of[2].of("mail", "charge") is None
    asked = [("billing", "bill"), ("billing", "send"), ("mail", "bill"), ("mail", "send"), ("", "bill"), ("", "send")]
    assert [[one.of(*what) for what in asked] for one in of] == [
        [ann[0]] * 6,
        [ann[1], ann[1], None, None, None, None],
        [ann[2], None, ann[2], None, ann[2], None],
    ]


def test_a_fold_in_parts_is_the_fold_of_all() -> None:
    told = rows(*(event(*scope) for scope in SCOPES for event in (j.Paused, j.Resumed, j.Paused)))
    for cut in range(len(told)):
        assert pauses.fold(told[cut:], pauses.fold(told[:cut])) == pauses.fold(told)
    assert pauses.fold(told).version == len(told)
