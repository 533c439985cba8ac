"""Every boundary of the invoicing example, in real processes: each effect is there once, on both stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import psycopg
import pytest
from crashtest_bench import INVOICING, Bench, verdicts

BILL = ("agent:app", "bill", "INV-2401", "--sandbox", "--jobs", "8")
OF_EFFECT = {
    "killed before the call", "killed during the call", "killed after it, before the record", "its reply lost on arrival",
    "killed, its record not acknowledged", "frozen before it, woken after takeover", "frozen during it, past the lease",
    "store restored to before it",
}  # fmt: skip
OF_STEP = {"killed before its result is recorded", "killed, its result not acknowledged"}
OF_TASK = {
    "killed between last effect and finish", "killed, its finish not acknowledged", "delivered again: at once, during, after",
}  # fmt: skip
CUTS = {
    "cut at its intent's COMMIT, before it", "cut at its intent's COMMIT, after it", "cut at its record's COMMIT, before it",
    "cut at its record's COMMIT, after it",
}  # fmt: skip


def wanted(of_effect: set[str], of_task: set[str]) -> set[str]:
    effects = {f"{name}: {point}" for name in ("charge", "send_mail", "tell_team") for point in of_effect}
    steps = {f"{name}: {point}" for name in ("draft", "proofread") for point in OF_STEP}
    return {"nothing is harmed", *effects, *steps, *(f"bill: {point}" for point in of_task)}


@pytest.mark.timeout(200)
def test_every_run_of_the_invoicing_example_passes(tmp_path: Path, measured: Callable[[str], None]) -> None:
    bench, junit = Bench(tmp_path, INVOICING), tmp_path / "crashtest.xml"
    data = bench.data(*BILL, "--junit", str(junit))
    points = wanted(OF_EFFECT, {*OF_TASK, "all workers killed in mid-transaction"})
    assert verdicts(data) == dict.fromkeys(points, "pass")
    assert [run["counted"] for run in data["runs"]] == [{"charge": 1, "send_mail": 1, "tell_team": 1}] * len(points)
    asked = {run["of"]: run["person"] for run in data["runs"] if run["point"] == "killed before the call"}
    assert asked == {"charge": [], "send_mail": [], "tell_team": ["tell_team: not found"]}, "only the opaque one needs a person"
    suite = ET.fromstring(junit.read_text())
    assert suite.attrib["tests"] == str(len(points))
    assert suite.attrib["failures"] == "0"
    assert {case.attrib["name"] for case in suite.iter("testcase")} == points
    assert bench.left() == {}
    assert [path.name for path in tmp_path.glob("semel-crashtest-*")] == [], "its stores are gone"
    people = sum(bool(run["person"]) for run in data["runs"])
    measured(f"{len(points)} runs, 3 effects each once, a person asked in {people} of them, {data['seconds']:.1f} s")


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_run_of_the_invoicing_example_passes_on_postgresql(
    tmp_path: Path, server_url: str, measured: Callable[[str], None]
) -> None:
    bench = Bench(tmp_path, INVOICING)
    data = bench.data(*BILL, "--store", server_url.rpartition("/")[0] + "/template1")
    points = wanted(OF_EFFECT | CUTS, {*OF_TASK, "all connections ended by the server"})
    assert verdicts(data) == dict.fromkeys(points, "pass")
    assert [run["counted"] for run in data["runs"]] == [{"charge": 1, "send_mail": 1, "tell_team": 1}] * len(points)
    assert bench.left() == {}
    kinds = Counter(run["point"].split(" ")[0].rstrip(",") for run in data["runs"])
    told = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common() if kind != "nothing")
    measured(f"{len(points)} runs on PostgreSQL ({told}), 3 effects each once, {data['seconds']:.1f} s")


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_run_of_an_effect_in_the_ledgers_database_passes(
    tmp_path: Path, make_database: Callable[[str], str], measured: Callable[[str], None]
) -> None:
    """Its table is copied with the user's database, for each run; nobody is asked, ever."""
    url, bench = make_database("ledgered"), Bench(tmp_path)
    with psycopg.connect(url) as own:
        own.execute("CREATE TABLE paid (key text, name text)")
    data = bench.data("ledgered:app", "settle", "ann", "--probe", "ledgered:count", "--store", url, "--jobs", "6")
    points = {f"pay: {point}" for point in OF_EFFECT | CUTS}
    points |= {f"settle: {point}" for point in {*OF_TASK, "all connections ended by the server"}}
    unseen = {"pay: its reply lost on arrival": "not shown"}  # libpq reads it
    assert verdicts(data) == {**dict.fromkeys({"nothing is harmed", *points}, "pass"), **unseen}
    assert [(run["counted"], run["person"]) for run in data["runs"]] == [({"pay": 1}, [])] * (len(points) + 1)
    with psycopg.connect(url) as own:
        assert own.execute("SELECT count(*) FROM paid").fetchone() == (0,), "the user's own database is as it was"
        mine = f"semel_crashtest_{bench.pid}_%"
        left = own.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (mine,)).fetchall()
    assert left == []
    measured(f"{len(points) + 1} runs of an Atomic effect, {data['seconds']:.1f} s")
