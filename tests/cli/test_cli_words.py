"""How the commands put things: durations, values on one line, and nothing that a terminal would obey."""

from __future__ import annotations

import pytest

from semel.cli import needs, output
from semel.machine import effects as e
from semel.machine import recovery as r
from semel.machine.recovery import Rung


@pytest.mark.parametrize(
    ("ms", "long", "brief"),
    [
        (-5, "0 ms", "+0 ms"), (999, "999 ms", "+999 ms"), (1000, "1 s", "+1.00 s"), (1240, "1.2 s", "+1.24 s"),
        (59_900, "59.9 s", "+59.9 s"), (60_000, "1 min", "+1m00s"), (192_000, "3 min 12 s", "+3m12s"),
        (3_600_000, "1 h", "+1h00m"), (7_500_000, "2 h 5 min", "+2h05m"), (86_400_000, "1 d", "+1d00h"),
        (273_600_000, "3 d 4 h", "+3d04h"), (400 * 86_400_000, "400 d", "+400d00h"),
    ],
)  # fmt: skip
def test_durations(ms: int, long: str, brief: str) -> None:
    assert (output.duration(ms), output.elapsed(ms)) == (long, brief)
    assert len(brief) <= 8


def test_values_take_one_line_of_a_given_length() -> None:
    assert output.one_line({"a": "x\n\x1b[2J"}, 80) == '{"a": "x\\n\\u001b[2J"}'
    assert output.one_line("x" * 100, 10) == '"xxxxxxxx…' and len(output.one_line("x" * 100, 10)) == 10
    assert output.one_line("é", 10) == '"é"'


def test_text_is_cleaned() -> None:
    assert output.clean("a\nb\tc") == "a b c"
    assert output.clean("\x1b[31m\x9b\u202e\x00\x7f") == "\\x1b[31m\\x9b\\u202e\\x00\\x7f"
    assert output.clean("Zürich, 東京 ✓") == "Zürich, 東京 ✓"


def test_counts() -> None:
    assert [output.count(n, "crash", "crashes") for n in (0, 1, 2)] == ["no crashes", "1 crash", "2 crashes"]


RUNGS = (
    Rung("resend", 86_400_000),
    Rung("resend"),
    Rung("lookup", settle_ms=30_000),
    Rung("lookup"),
    Rung("repeat"),
    Rung("ask", None, 300_000),
)


def effect(rungs: tuple[Rung, ...]) -> e.Effect:
    return e.Effect("k", "charge", {}, "d", "", "", 0, tuple(map(str, rungs)))


def test_the_recorded_ladder_is_read_back() -> None:
    assert r.rungs_of(effect(RUNGS)) == RUNGS
    assert needs.ladder(effect(RUNGS)) == (
        "send it again within 1 d, then send it again, always, then ask the provider (settle 30 s), then ask the provider, "
        "then repeat it, then ask a person (settle 5 min)"
    )
    assert needs.settle_of_person(effect(RUNGS)) == 300_000 and needs.settle_of_person(effect(())) == 0
