"""Guards of the machine whose removal the explorer finds too (tests/explore), each with the world in which it does."""

from __future__ import annotations

PROMISE = "tests/explore/test_explore_worlds.py::test_the_promise_holds_in_every_state"
EXPLORED = {
    "R1 a disproof closes only its own submission": "keyed-twice",
    "R1 the age restarts only when clean": "retention",
    "R1 an earlier unknown counts while a further try is in flight": "parallel",
    "R2 every end of an attempt loses its submissions": "lookup",
    "R4 not_found waits for settle": "lookup",
    "R4 a fence quiets nothing that is unfenced": "unfenced",
    "R8 a key's token rises with each intent": "shared-key",
    "R8 an unknown joined key counts": "shared-beside",
    "R9 what is confirmed is not submitted again": "lookup",
    "R9 what is in flight is not submitted again": "shared-key",
    "R13 a resend stays inside the retention": "retention",
    "R20 in doubt the first submission looks up first": "restore",
    "R20 what is accepted in the window is in doubt": "restore",
    "R21 a decision on what has moved on": "stale-view",
    "R21 nothing is sent before people have approved it": "approval",
    "R21 the machine keeps the approved words": "approval",
    "R21 what was denied stays denied": "approval",
    "invariant: nothing starts while something is unknown": "parallel",
    "tokens rise with each claim": "lookup",
}
FURTHER = {  # in a world that is too big for make test
    "R20 what nothing could stop is not taken for fenced": "restore unfenced",
    "R20 the age counts from when it went back to": "restore keyed",
}
