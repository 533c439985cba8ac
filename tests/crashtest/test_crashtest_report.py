"""What a report says of what was not shown: as words, as JUnit XML, and to a test."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from semel.errors import Misuse
from semel.testing.crashtest.report import Report, Row, Verdict

NOTE = "place: its reply lost on arrival: no reply was lost."


def row(verdict: Verdict, why: str = "") -> Row:
    return Row("place", "effect", "its reply lost on arrival", "succeeded", "succeeded", {"place": 1}, 1, verdict, why, (), 0.1)


def report(*rows: Row) -> Report:
    return Report("shelf:app", "stock", "sqlite", "probe", rows, (), 1.0, [NOTE])


def test_what_was_not_shown_is_no_pass_and_no_failure() -> None:
    told = report(row("pass"), row("not shown", "no reply was lost"))
    assert told.passed
    told.assert_exactly_once()
    assert told.wrong() == []
    assert told.summary() == "1 of 2 runs passed, 1 not shown, in 1.0 s"
    suite = ET.fromstring(told.junit())
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["skipped"]) == ("2", "0", "1")
    assert [found.attrib["message"] for found in suite.iter("skipped")] == ["no reply was lost"]
    bad = report(row("not shown"), row("LOSS", "it is gone"))
    assert not bad.passed
    with pytest.raises(AssertionError, match="0 of 2 runs passed, 1 LOSS, 1 not shown"):
        bad.assert_exactly_once()


def test_nobody_asserts_exactly_once_of_what_nobody_counted() -> None:
    told = replace(report(row("pass")), counts="calls")
    assert told.passed
    with pytest.raises(Misuse, match="probe=count, or sandbox_env='PROVIDER'"):
        told.assert_exactly_once()
    with pytest.raises(AssertionError, match="1 STUCK"):
        replace(told, rows=[row("STUCK")]).assert_exactly_once()


def test_the_notes_are_in_the_junit_file() -> None:
    suite = ET.fromstring(report(row("pass")).junit())
    assert suite.findtext("system-out") == NOTE
