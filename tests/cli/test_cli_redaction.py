"""Redacted values are nowhere: in no byte of the store, its log, any output, any log record; and equality can be proved."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import typer
from cli_office import Office, until
from click.testing import CliRunner, Result

from semel.cli import main

CARD, OTHER, PIN, NAME, NOTE = "4929123456789012", "4929999999999999", 73519648, "Ada Lovelace", "visible-note-5512"
SECRETS = (CARD.encode(), str(PIN).encode(), NAME.encode(), CARD[:12].encode())
KEY = "5e" * 32
REFS = ("late", "crash", "ok", "refused", "after", "lost", "approved", "denied", "other")
COMMAND = typer.main.get_command(main.cli)  # once: making it takes longer than most commands
FILL = f"import vault\nfor ref in {('late', 'slow', *REFS[1:])!r}: vault.till.enqueue(ref, {NOTE!r})\nvault.app.close()"
HOLD = "import time, vault\nvault.app.tasks.list()\nopen('held', 'w').close()\ntime.sleep(100)"  # so that the log stays


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
        done = CliRunner().invoke(COMMAND, args, env=env, input=input)
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
    with log_is_kept(made.at):
        yield made
        made.end()


@contextlib.contextmanager
def log_is_kept(url: str) -> Iterator[None]:
    """A server that others keep busy removes what of its log is old; a slot holds on to what comes from now on."""
    if not url:
        yield
        return
    slot = f"redaction_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("SELECT pg_create_physical_replication_slot(%s, true)", (slot,))
        try:
            yield
        finally:
            link.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


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


def decided(till: Till) -> None:
    """People look at what waits and what is unknown, and decide; what they write is looked through too."""
    keys = {one["task_key"]: one["key"] for one in json.loads(till.look("approvals", "--json").stdout)["approvals"]}
    for command in () if till.at else (("approvals",), ("unknown",), ("unknown", "--json"), ("dead",), ("dead", "--json")):
        till.look(*command)
    approve = ("approve", keys["approved"], "--by", "ann", "--yes", "--edit")
    assert "is redacted" in till.look(*approve, '{"card": "1"}', code=2).stderr
    till.look(*approve, '{"cents": 600}')
    till.look("approve", keys["other"], "--by", "ann", "--yes")
    assert "leave it out" in till.look("deny", keys["denied"], "--by", "ann", "--reason", f"{CARD} is his", code=2).stderr
    till.look("deny", keys["denied"], "--by", "ann", "--reason", "not his card")
    for ref in ("late", "lost"):
        (unknown,) = json.loads(till.look("show", ref, "--json").stdout)["effects"]
        resolve = ("resolve", unknown["key"], "--by", "ann", "--confirmed")
        assert "leave it out" in till.look(*resolve, f'"{CARD}"', code=2).stderr
        till.look(*resolve, '"w_1"')


def told(till: Till) -> str:
    """What is on record, in data and in words; the key of an effect."""
    shown = {ref: json.loads(till.look("show", ref, "--json").stdout)["effects"][0] for ref in REFS}
    assert all(set(effect["args"]["card"]) == {"semel:redacted"} for effect in shown.values())
    story = {ref: till.look("why", ref, "--json").stdout for ref in REFS}
    in_words = REFS[:2] if till.at else REFS  # words are made of what is on record, whichever store it is
    assert all("[redacted]" in till.look("why", ref).stdout + till.look("show", ref).stdout for ref in in_words)
    assert "[redacted] is stolen ([redacted])" in story["refused"] and "no room for [redacted] of [redacted]" in story["after"]
    assert "cannot look for [redacted] now" in story["crash"] and "late: [redacted]xxx" in story["late"]
    assert "is not the one that was approved" in story["other"]
    assert shown["crash"]["result"] == {
        "id": "late_crash", "card": "[redacted]", "said": "charged [redacted], pin [redacted].",
    }  # fmt: skip
    return str(shown["ok"]["key"])


def proved(till: Till, key: str) -> None:
    """Whoever has the key can prove equality, and nobody else."""
    assert till.look("prove", key, "card", input=CARD + "\n").stdout.startswith("EQUAL")
    assert till.look("prove", key, "holder", input=f'{{"name":"{NAME}","pin":{PIN}}}').stdout.startswith("EQUAL")
    assert json.loads(till.look("prove", key, "card", "--json", input=OTHER, code=1).stdout)["equal"] is False
    assert till.look("prove", key, "card", input=str(2**60), code=1).stdout.startswith("NOT EQUAL")
    assert "no value was given" in till.look("prove", key, "card", input="\n", code=2).stderr
    assert "SEMEL_REDACTION_KEY is not set" in till.look("prove", key, "card", input=CARD, key="", code=2).stderr


def test_nowhere_in_the_store_its_log_any_output_and_equality_is_proved(till: Till) -> None:
    till.python(FILL)
    if not till.at:
        till.start_python(HOLD)
        until(lambda: (till.folder / "held").exists(), "the store is held open")
    till.semel("worker", "vault:app", "--until-idle", "--concurrency", "1")
    decided(till)
    till.more["VAULT_OTHER"] = OTHER
    till.semel("worker", "vault:app", "--until-idle", "--concurrency", "1")
    world = Path(till.more["VAULT_WORLD"])
    assert (world / "paid_approved").read_text() == f"{CARD} 600"
    assert not (world / "paid_denied").exists() and not (world / "paid_other").exists()
    proved(till, told(till))
    assert till.look("verify").stdout.startswith("WHOLE")
    for where, found in (("store", everything(till)), ("output", till.said)):
        assert NOTE.encode() in found, f"the {where} was not searched"
        assert [secret for secret in (*SECRETS, OTHER.encode(), KEY.encode()) if secret in found] == [], where
    assert b"INFO:till:" in till.said, "the workers' logs were not searched"
