"""Redacted values are nowhere: in no byte of the store, its log, any output, any log record; and equality can be proved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli_office import Office, until
from typer.testing import CliRunner, Result

from semel.cli import main

CARD, OTHER, PIN, NAME, NOTE = "4929123456789012", "4929999999999999", 73519648, "Ada Lovelace", "visible-note-5512"
SECRETS = (CARD.encode(), str(PIN).encode(), NAME.encode(), CARD[:12].encode())
KEY = "5e" * 32
REFS = ("late", "crash", "ok", "refused", "after", "lost", "approved", "denied", "other")
FILL = f"import vault\nfor ref in {('late', 'slow', *REFS[1:])!r}: vault.till.enqueue(ref, {NOTE!r})\nvault.app.close()"
HOLD = "import time, vault\nvault.app.tasks.list()\nopen('held', 'w').close()\ntime.sleep(100)"  # so that the log stays
PROVE = """
import sys, vault
key = sys.argv[1]
print(vault.app.effects.proves(key, "card", vault.CARD), vault.app.effects.proves(key, "card", vault.CARD + "0"))
print(vault.app.effects.proves(key, "holder", {"name": "Ada Lovelace", "pin": vault.PIN}))
vault.app.close()
"""


class Till(Office):
    """The office of a till, on either store. All that any command said is kept."""

    at = ""
    said = b""

    @property
    def url(self) -> str:
        return self.at or f"sqlite:///{self.store}"

    def semel(self, *args: str, code: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = super().semel(*args, code=code, cwd=cwd)
        self.said += (done.stdout + done.stderr).encode()
        return done

    def look(self, *args: str, code: int = 0, input: str | None = None, key: str = KEY) -> Result:
        env = {"SEMEL_STORE": self.url, "COLUMNS": "80", "SEMEL_REDACTION_KEY": key or None, "NO_COLOR": "1"}
        done = CliRunner().invoke(main.cli, args, env=env, input=input)
        assert done.exit_code == code, f"semel {args}: {done.exit_code}\n{done.output}\n{done.exception!r}"
        self.said += done.output.encode() + done.stderr.encode()
        return done


@pytest.fixture(params=["sqlite", "postgres"])
def till(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Till]:
    world = tmp_path / "world"
    made = Till(tmp_path / "till")
    made.folder.mkdir()
    world.mkdir()
    (made.folder / "began").touch()
    made.at = "" if request.param == "sqlite" else request.getfixturevalue("empty_database")
    made.more = {
        "VAULT_CARD": CARD, "VAULT_PIN": str(PIN), "VAULT_WORLD": str(world), "SEMEL_REDACTION_KEY": KEY, "SEMEL_STORE": made.url,
    }  # fmt: skip
    yield made
    made.end()


def everything(till: Till) -> bytes:
    """All bytes of the store, its log and its neighbours. Read by another process: closing a file here would drop locks."""
    if not till.at:
        assert (till.folder / "office.db-wal").stat().st_size > 0
        program = "import pathlib, sys\nfor f in pathlib.Path('.').iterdir(): sys.stdout.buffer.write(f.read_bytes())"
        return subprocess.run([sys.executable, "-c", program], cwd=till.folder, capture_output=True, check=True).stdout
    found = b""
    with psycopg.connect(till.at, autocommit=True) as link:
        tables = link.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'semel'"
        ).fetchall()
        assert len(tables) > 5
        for (table,) in tables:
            with link.cursor().copy(f"COPY {table} TO STDOUT (FORMAT BINARY)".encode()) as rows:  # no hex: bytes as they are
                found += b"".join(map(bytes, rows))
        tables_only = found.count(NOTE.encode())
        (place,) = link.execute("SHOW data_directory").fetchone() or ("",)
    began = (till.folder / "began").stat().st_mtime
    for file in Path(place, "pg_wal").glob("0*"):
        found += file.read_bytes() if file.stat().st_mtime >= began else b""
    assert found.count(NOTE.encode()) > tables_only, "the log was not searched"
    return found


def effects(till: Till, ref: str) -> list[dict[str, Any]]:
    return list(json.loads(till.look("show", ref, "--json").stdout)["effects"])


def test_nowhere_in_the_store_its_log_any_output_and_equality_is_proved(till: Till) -> None:
    till.python(FILL)
    till.start_python(HOLD)
    until(lambda: (till.folder / "held").exists(), "the store is held open")
    till.semel("worker", "vault:app", "--until-idle", "--concurrency", "1")
    keys = {one["task_key"]: one["key"] for one in json.loads(till.look("approvals", "--json").stdout)["approvals"]}
    for command in (("approvals",), ("unknown",), ("unknown", "--json"), ("dead",), ("dead", "--json"), ("tasks",)):
        till.look(*command)
    assert (
        "is redacted" in till.look("approve", keys["approved"], "--by", "ann", "--yes", "--edit", '{"card": "1"}', code=2).stderr
    )
    till.look("approve", keys["approved"], "--by", "ann", "--yes", "--edit", '{"cents": 600}')
    till.look("approve", keys["other"], "--by", "ann", "--yes")
    assert "leave it out" in till.look("deny", keys["denied"], "--by", "ann", "--reason", f"{CARD} is his", code=2).stderr
    till.look("deny", keys["denied"], "--by", "ann", "--reason", "not his card")
    for ref in ("late", "lost"):
        (unknown,) = effects(till, ref)
        assert "leave it out" in till.look("resolve", unknown["key"], "--by", "ann", "--confirmed", f'"{CARD}"', code=2).stderr
        till.look("resolve", unknown["key"], "--by", "ann", "--confirmed", '"w_1"')
    till.more["VAULT_OTHER"] = OTHER
    till.semel("worker", "vault:app", "--until-idle", "--concurrency", "1")
    world = Path(till.more["VAULT_WORLD"])
    assert (world / "paid_approved").read_text() == f"{CARD} 600" and not (world / "paid_denied").exists()
    assert not (world / "paid_other").exists() and "is not the one that was approved" in till.look("why", "other").stdout
    shown = {ref: json.loads(till.look("show", ref, "--json").stdout)["effects"][0] for ref in REFS}
    assert all(set(effect["args"]["card"]) == {"semel:redacted"} for effect in shown.values())
    told = {ref: till.look("why", ref, "--json").stdout for ref in REFS}
    assert all("[redacted]" in till.look("why", ref).stdout + till.look("show", ref).stdout for ref in REFS)
    assert "[redacted] is stolen ([redacted])" in told["refused"] and "no room for [redacted] of [redacted]" in told["after"]
    assert "cannot look for [redacted] now" in told["crash"] and "late: [redacted]xxx" in told["late"]
    assert shown["crash"]["result"] == {
        "id": "late_crash", "card": "[redacted]", "said": "charged [redacted], pin [redacted].",
    }  # fmt: skip
    paid = shown["ok"]
    till.said += (proved := till.python(PROVE, paid["key"])).encode()
    assert proved == "True False\nTrue\n"
    assert till.look("prove", paid["key"], "card", input=CARD + "\n").stdout.startswith("EQUAL")
    assert till.look("prove", paid["key"], "holder", input=f'{{"name":"{NAME}","pin":{PIN}}}').stdout.startswith("EQUAL")
    assert json.loads(till.look("prove", paid["key"], "card", "--json", input=OTHER, code=1).stdout)["equal"] is False
    assert "SEMEL_REDACTION_KEY is not set" in till.look("prove", paid["key"], "card", input=CARD, key="", code=2).stderr
    assert till.look("verify").stdout.startswith("WHOLE")
    stored = everything(till)
    for where, found in (("store", stored), ("output", till.said)):
        assert NOTE.encode() in found, f"the {where} was not searched"
        assert [secret for secret in (*SECRETS, OTHER.encode(), KEY.encode()) if secret in found] == [], where
    assert b"INFO:till:" in till.said, "the workers' logs were not searched"
