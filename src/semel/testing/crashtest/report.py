"""What came of a crash test: a row for each run, as a table's cells, as JSON, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree as ET

from semel.errors import Misuse
from semel.machine.words import count
from semel.testing.crashtest.records import Fault

Verdict = Literal["pass", "not shown", "DUPLICATE", "LOSS", "STUCK", "FAULT"]
NOT_BAD = ("pass", "not shown")  # not shown: nothing went wrong, and the harm could not be done


@dataclass(frozen=True)
class Row:
    """One run. of: the effect, step or task that was hurt. kind: what that is, and an effect's first way out of the unknown.

    counted: by effect; None: nobody counts it.
    person: what the person was asked and said. why: of a verdict that is no pass. wanted: effects that there must be.
    """

    of: str
    kind: str
    point: str
    expected: str
    observed: str
    counted: dict[str, int | None]
    wanted: int
    verdict: Verdict
    why: str
    person: tuple[str, ...]
    seconds: float

    @property
    def effects(self) -> str:
        """The count as a cell: of how many wanted effects there is one each."""
        known = [n for n in self.counted.values() if n is not None]
        return f"{sum(known)} of {self.wanted}" if known or self.wanted == 0 else "-"

    @property
    def name(self) -> str:
        """The whole injection point."""
        return f"{self.of}: {self.point}" if self.of else self.point


@dataclass(frozen=True)
class Report:
    """All of it. store: "sqlite" or "postgres". counts: what counted the effects. notes: what was not shown, and why."""

    target: str
    task: str
    store: str
    counts: Literal["probe", "sandbox", "calls"]
    rows: Sequence[Row]
    faults: Sequence[Fault]
    seconds: float
    notes: Sequence[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every run whose harm could be done passed, and nothing was found in the user's own code."""
        return not self.faults and all(row.verdict in NOT_BAD for row in self.rows)

    def assert_exactly_once(self) -> None:
        """Raise `AssertionError`, which tells each run that did not pass and each fault, unless all is well.

        Raises `Misuse` if nobody counted effects at the resource: then all may be well on semel's own record alone.
        """
        if not self.passed:
            raise AssertionError("\n".join([self.summary(), *self.wrong()]))
        if self.counts == "calls":
            raise Misuse(
                "nobody counted the effects at the resource, so that they were there exactly once is not shown; name a function "
                "that counts there: probe=count, or sandbox_env='PROVIDER'; of semel's own record, assert report.passed"
            )

    def wrong(self) -> list[str]:
        """What is wrong, a line each."""
        rows = [f"{row.verdict}  {row.name}: {row.why}" for row in self.rows if row.verdict not in NOT_BAD]
        return rows + [f"{fault.name}  {fault.where}: {fault.what}; {fault.mend}" for fault in self.faults]

    def summary(self) -> str:
        """One line."""
        bad = [row.verdict for row in self.rows if row.verdict != "pass"]
        order = ("DUPLICATE", "LOSS", "STUCK", "FAULT", "not shown")
        told = ", ".join(f"{bad.count(name)} {name}" for name in order if name in bad)
        faults = f"{count(len(self.faults), 'fault')} in your code" if self.faults else ""
        return (
            f"{len(self.rows) - len(bad)} of {len(self.rows)} runs passed"
            + "".join(f", {part}" for part in (told, faults) if part)
            + f", in {self.seconds:.1f} s"
        )

    def data(self) -> dict[str, Any]:
        """As JSON, with stable names."""
        return {
            "app": self.target,
            "task": self.task,
            "store": self.store,
            "counted_by": self.counts,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "runs": [{**asdict(row), "person": list(row.person), "seconds": round(row.seconds, 3)} for row in self.rows],
            "faults": [asdict(fault) for fault in self.faults],
            "notes": list(self.notes),
        }

    def junit(self) -> str:
        """As JUnit XML: a test case for each run, and one for each fault."""
        failures = len(self.wrong())
        suite = ET.Element(
            "testsuite",
            name=f"semel crashtest {self.target} {self.task}", tests=str(len(self.rows) + len(self.faults)),
            failures=str(failures), errors="0",
            skipped=str(sum(row.verdict == "not shown" for row in self.rows)), time=f"{self.seconds:.3f}",
        )  # fmt: skip
        classname = f"{self.target.replace(':', '.')}.{self.task}"
        for row in self.rows:
            case = ET.SubElement(suite, "testcase", classname=classname, name=row.name, time=f"{row.seconds:.3f}")
            if row.verdict == "not shown":
                ET.SubElement(case, "skipped", message=_xml(row.why))
            elif row.verdict != "pass":
                failure = ET.SubElement(case, "failure", type=row.verdict, message=_xml(row.why))
                failure.text = _xml(f"expected {row.expected}, observed {row.observed}; counted {row.counted}")
        for fault in self.faults:
            case = ET.SubElement(suite, "testcase", classname=classname, name=f"{fault.name} {fault.where}", time="0")
            ET.SubElement(case, "failure", type=fault.name, message=_xml(fault.what)).text = _xml(fault.mend)
        ET.SubElement(suite, "system-out").text = _xml("\n".join(self.notes))
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(c if c in "\t\n" or c.isprintable() else "?" for c in text)
