"""The table of what broke earlier drafts names worlds, guards and files that are there."""

from __future__ import annotations

import re

from explore_findings import FINDINGS
from explore_removed import EXPLORED, ROOT
from explore_worlds import KNOWN, WORLDS


def test_every_finding_is_reached_here_or_is_another_instruments() -> None:
    assert [row.number for row in FINDINGS if row.number[0] != "S"] == [
        "1", "2a", "2b", "2c", "3", "4", "5", "6a", "6b", "6c", *(str(n) for n in range(7, 18))
    ]  # fmt: skip
    assert [row.number for row in FINDINGS if row.number[0] == "S"] == [f"S{n}" for n in range(1, 16)]
    for row in FINDINGS:
        assert row.elsewhere or (row.world and row.found), row
        assert not row.world or row.world in {world.name for world in WORLDS}, row
        assert set(row.found) <= {*EXPLORED, *(world.name for world in KNOWN)}, row


def test_the_instruments_that_it_names_are_there() -> None:
    """Two of them are built beside this one: their folders come with them."""
    beside = ("tests/simulation", "tests/explore/procedures")
    for row in FINDINGS:
        for path in re.findall(r"tests/[\w/.]+", row.elsewhere):
            assert path in beside or (ROOT / path).exists(), (row.number, path)
