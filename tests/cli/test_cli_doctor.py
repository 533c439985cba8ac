"""`semel doctor` and `semel migrate` on files."""

from __future__ import annotations

import json
from typing import Any

import apsw
import pytest
from cli_office import Office, until

from semel.store import sqlitefile


def found(office: Office, code: int = 0) -> dict[str, Any]:
    """By check: the finding."""
    data = json.loads(office.look("doctor", "--json", code=code).stdout)
    return {finding["check"]: finding for finding in data["findings"]}


def damaged(office: Office) -> None:
    """Overwrite a page in the middle of the file."""
    with apsw.Connection(str(office.store)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with office.store.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)


def test_a_store_after_a_days_work_is_well_but_for_what_is_unknown(worked: Office) -> None:
    said = worked.look("doctor").stdout
    assert said.startswith("WARNING  1 warning, 10 checks are well:")
    assert [line for line in said.splitlines() if len(line) > 80] == []
    assert "  mend  semel unknown --all-tenants" in said
    checks = found(worked)
    assert {name for name, finding in checks.items() if finding["level"] != "ok"} == {"unknown"}
    assert checks["unknown"]["found"].startswith("1 effect, the oldest for ")
    assert checks["schema"]["found"].startswith(f"version {sqlitefile.SCHEMA}, epoch ")


def test_a_worker_at_work_is_seen_and_not_disturbed(office: Office) -> None:
    worker = office.start("worker", "clerk:app")
    until(lambda: "1 living" in found(office)["sessions"]["found"], "it lives")
    checks = found(office)
    assert checks["processes"]["found"].startswith("1 other (")
    assert checks["journal mode"]["found"] == "wal"
    office.python("import clerk; clerk.count.using(key='after').enqueue(1); clerk.app.close()")
    until(lambda: office.task("after")["delivery"] == "acknowledged", "it works on")
    worker.terminate()
    assert worker.wait(timeout=60) == 0


def test_damage_is_a_danger(office: Office) -> None:
    damaged(office)
    checks = found(office, code=1)
    assert checks["integrity"]["level"] == "danger"
    assert "schema" not in checks, "what is damaged is not to be migrated"
    assert "put a backup in its place" in " ".join(office.look("doctor", code=1).stdout.split())


def test_a_file_of_something_else_is_a_danger_or_no_store(fresh: Office) -> None:
    fresh.store.write_bytes(b"no database at all" * 100)
    assert found(fresh, code=1)["integrity"]["level"] == "danger"
    fresh.store.unlink()
    with apsw.Connection(str(fresh.store)) as raw:
        raw.execute("CREATE TABLE other (x)")
    checks = found(fresh, code=1)
    assert (checks["schema"]["level"], checks["journal mode"]["level"]) == ("warn", "danger")


def test_looking_makes_no_store(fresh: Office) -> None:
    done = fresh.look("doctor", code=2)
    assert "looking does not make one" in done.stderr
    assert not fresh.store.exists()
    assert "lives in its own process alone" in fresh.look("doctor", "--store", "sqlite:///:memory:", code=2).stderr


def test_migrate_makes_a_file_and_then_has_nothing_to_do(fresh: Office) -> None:
    first = json.loads(fresh.look("migrate", "--json").stdout)
    assert (first["before"], first["after"], first["tenant_roles"]) == (0, sqlitefile.SCHEMA, {})
    said = " ".join(fresh.look("migrate").stdout.split())
    assert said.endswith(f"has schema version {sqlitefile.SCHEMA} already; nothing to do.")
    assert fresh.json("tasks")["tasks"] == []


def test_migrate_permits_longer_leases(office: Office) -> None:
    late = """import semel; from datetime import timedelta
app = semel.App(lease=timedelta(seconds=90))
try:
    app.work('k', kind='x').__enter__()
except semel.Misuse as error:
    print(error)
"""
    assert "semel migrate --largest-lease 90" in office.python(late)
    assert "A lease may be 90 s long now" in office.look("migrate", "--largest-lease", "90").stdout
    assert office.python(late) == ""
    assert "a process with a lease of 90 s is at work" in office.look("migrate", "--largest-lease", "60", code=2).stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--largest-lease", "0"), "is no lease"),
        (("--largest-lease", "1e9"), "is no lease"),
        (("--tenant-role", "acme_app=acme"), "is for PostgreSQL"),
        (("--tenant-role", "acme_app="), "is not ROLE=TENANT"),
        (("--store", "sqlite:///:memory:"), "lives in its own process alone"),
        (("--store", "mysql://x"), "has no scheme that semel knows"),
    ],
)
def test_migrate_refuses_what_cannot_be(fresh: Office, args: tuple[str, ...], said: str) -> None:
    assert said in fresh.look("migrate", *args, code=2).stderr
    assert not fresh.store.exists()


def test_a_newer_file_is_refused_by_migrate_and_a_danger_to_doctor(office: Office) -> None:
    with apsw.Connection(str(office.store)) as raw:
        raw.execute(f"PRAGMA user_version={sqlitefile.SCHEMA + 1}")
    assert "pip install -U semel" in office.look("migrate", code=2).stderr
    assert found(office, code=1)["schema"]["level"] == "danger"
