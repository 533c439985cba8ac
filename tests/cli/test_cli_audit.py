"""`semel audit`: keys, signed heads, exports that verify without a database, and what each of them cannot prove."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_office import Office
from test_cli_verify import OF_1, TAMPER

from semel.engine.files import create
from semel.errors import Misuse

Lines = list[str]


@pytest.fixture(scope="session")
def signed_once(worked: Office, tmp_path_factory: pytest.TempPathFactory) -> Office:
    """A store whose heads were signed. Not to be changed."""
    office = Office(tmp_path_factory.mktemp("signed") / "office")
    shutil.copytree(worked.folder, office.folder)
    office.look("audit", "keygen", "--to", str(office.folder / "op"))
    sign(office, "heads.jsonl")
    return office


@pytest.fixture
def signed(signed_once: Office, tmp_path: Path) -> Office:
    """A copy of that, to be changed."""
    shutil.copytree(signed_once.folder, tmp_path / "signed")
    return Office(tmp_path / "signed")


@pytest.fixture(scope="session")
def exported_once(signed_once: Office) -> Path:
    """All of it, exported. Not to be changed."""
    return export(signed_once, "kept.jsonl")


def sign(office: Office, name: str, *more: str) -> Path:
    to = office.folder / name
    office.look("audit", "sign", "--to", str(to), *(more or ("--key", str(office.folder / "op.key"))))
    return to


def export(office: Office, name: str = "out.jsonl", *more: str) -> Path:
    to = office.folder / name
    office.look("audit", "export", "--to", str(to), *more)
    return to


def verified(office: Office, *how: str, code: int = 0) -> Any:
    return json.loads(office.look("audit", "verify", *how, "--json", code=code).stdout)


def against(office: Office, name: str = "heads.jsonl", key: str = "op.pub") -> list[str]:
    return ["--heads", str(office.folder / name), "--public-key", str(office.folder / key)]


def words(text: str) -> str:
    return " ".join(text.split())


# --- keys and heads ---


def test_a_key_pair_is_made_for_its_owner_alone_and_never_over_another(office: Office) -> None:
    done = office.look("audit", "keygen", "--to", str(office.folder / "op"))
    assert "signs, and is for its owner alone" in words(done.stdout)
    assert stat.S_IMODE((office.folder / "op.key").stat().st_mode) == 0o600
    before = (office.folder / "op.key").read_bytes()
    again = office.look("audit", "keygen", "--to", str(office.folder / "op"), code=2)
    assert "op.key cannot be made (it is there already)" in words(again.stderr)
    assert (office.folder / "op.key").read_bytes() == before


def test_what_was_signed_is_held(signed: Office) -> None:
    found = verified(signed, *against(signed))
    assert found["whole"] and found["heads"] == 10 and found["note"] == ""
    assert "It holds what was signed: 10 heads agree." in words(signed.look("audit", "verify", *against(signed)).stdout)
    assert stat.S_IMODE((signed.folder / "heads.jsonl").stat().st_mode) == 0o600


def test_the_key_may_come_from_the_environment_as_a_file_or_as_text(signed: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    key = signed.folder / "op.key"
    for n, value in enumerate((str(key), key.read_text())):
        monkeypatch.setenv("SEMEL_AUDIT_KEY", value)
        signed.look("audit", "sign", "--to", str(signed.folder / f"h{n}"))
        assert verified(signed, *against(signed, f"h{n}"))["heads"] == 10


def test_nothing_is_signed_without_a_key_unless_that_is_said(signed: Office) -> None:
    to = ["--to", str(signed.folder / "weak")]
    assert "there is no key to sign with" in words(signed.look("audit", "sign", *to, code=2).stderr)
    done = signed.look("audit", "sign", *to, "--unsigned")
    assert "It is not signed: it proves as much as the place in which it is kept." in words(done.stdout)
    found = verified(signed, "--heads", str(signed.folder / "weak"))
    assert found["whole"] and found["heads"] == 10 and "it is not signed" in found["note"]
    asked = verified(signed, *against(signed, "weak"), code=1)
    assert [one["what"] for one in asked["wrong"]] == ["signature"]


def test_a_signature_that_was_not_checked_is_said(signed: Office) -> None:
    found = verified(signed, "--heads", str(signed.folder / "heads.jsonl"))
    assert found["heads"] == 10 and "its signature was not checked" in found["note"]
    assert "--public-key goes with --heads" in words(signed.look("audit", "verify", *against(signed)[2:], code=2).stderr)


def lines_of(path: Path) -> Lines:
    return path.read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [*lines[:3], *lines[4:]], "it was changed, "),
        (lambda lines: [*lines[:1], lines[1].replace(",", ", "), *lines[2:]], "it was changed"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 4 is not in its place"),
        (lambda lines: [lines[0].replace('"epoch":', '"epoch":1'), *lines[1:]], "it was changed"),
        (lambda lines: lines[:-1], "its end is missing"),
        (lambda lines: [*lines, lines[-1]], "something stands after its end"),
        (lambda lines: lines[1:], "it is no file of heads"),
        (lambda lines: [], "its end is missing"),
        (lambda lines: [*lines[:-1], lines[-1].replace('"signature":"', '"signature":"00')], "is not what was signed"),
    ],
)
def test_heads_that_were_changed_prove_nothing(
    signed_once: Office, tmp_path: Path, change: Callable[[Lines], Lines], said: str
) -> None:
    path = tmp_path / "heads.jsonl"
    path.write_text("".join(change(lines_of(signed_once.folder / "heads.jsonl"))))
    found = verified(signed_once, "--heads", str(path), *against(signed_once)[2:], code=1)
    assert [one["what"] for one in found["wrong"]] == ["signature"] and found["heads"] == 0
    assert said.removesuffix(", ") in found["wrong"][0]["text"]


def test_unsigned_heads_that_were_changed_prove_nothing_either(signed: Office) -> None:
    path = sign(signed, "weak.jsonl", "--unsigned")
    lines = lines_of(path)
    path.write_text("".join([*lines[:3], *lines[4:]]))
    found = verified(signed, "--heads", str(path), code=1)
    assert "its heads are not those that its last line counts" in found["wrong"][0]["text"] and found["heads"] == 0


def test_a_file_that_another_has_made_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(Misuse, match="name a file that is not there yet"), create(path) as file:
        file.write(b"mine")
        path.write_text("theirs")
    assert path.read_text() == "theirs" and list(tmp_path.iterdir()) == [path]


def test_heads_that_another_has_signed_are_not_believed(signed: Office) -> None:
    signed.look("audit", "keygen", "--to", str(signed.folder / "eve"))
    sign(signed, "evil.jsonl", "--key", str(signed.folder / "eve.key"))
    found = verified(signed, *against(signed, "evil.jsonl"), code=1)
    assert "another key has signed it" in found["wrong"][0]["text"]


def test_keys_that_are_none(signed: Office) -> None:
    for key, said in (
        ("op.pub", "is not the key that is wanted"),
        ("nowhere", "cannot be read"),
        ("heads.jsonl", "is not the key"),
    ):
        done = signed.look("audit", "sign", "--to", str(signed.folder / "x"), "--key", str(signed.folder / key), code=2)
        assert said in words(done.stderr)
    done = signed.look("audit", "verify", *against(signed, key="op.key"), code=2)
    assert "op.key is not the key that is wanted" in words(done.stderr)


def test_without_the_library_it_says_what_to_install(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = office.look("audit", "keygen", "--to", str(office.folder / "op"), code=2)
    assert "pip install 'semel[audit]'" in words(done.stderr)
    export(office)
    assert verified(office, "--export", str(office.folder / "out.jsonl"))["whole"], "an export needs no library"


def test_work_that_was_done_since_is_no_tampering(signed: Office) -> None:
    signed.python("import clerk; clerk.count.using(key='more').enqueue(3); clerk.app.close()")
    found = verified(signed, *against(signed))
    assert found["whole"] and (found["streams"], found["heads"]) == (11, 10)


# --- exports ---


def test_an_export_verifies_where_there_is_no_database(signed: Office, tmp_path: Path) -> None:
    to = export(signed)
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    elsewhere = tmp_path / "auditor"
    elsewhere.mkdir()
    for name in ("out.jsonl", "heads.jsonl", "op.pub"):
        (elsewhere / name).write_bytes((signed.folder / name).read_bytes())
    auditor = Office(elsewhere, {"SEMEL_STORE": "postgresql://nobody@127.0.0.1:9/nowhere"})
    done = auditor.semel("audit", "verify", "--export", "out.jsonl", "--heads", "heads.jsonl", "--public-key", "op.pub")
    assert done.stdout.startswith("WHOLE  Every chain in out.jsonl is intact: ") and "10 signed heads agree" in words(done.stdout)
    assert "Note" not in done.stdout
    assert sorted(path.name for path in elsewhere.iterdir()) == ["heads.jsonl", "op.pub", "out.jsonl"]
    alone = auditor.semel("audit", "verify", "--export", "out.jsonl")
    assert "not proved without signed heads" in words(alone.stdout)


def test_an_export_holds_every_row_as_it_stands(office: Office) -> None:
    lines = [json.loads(line) for line in lines_of(export(office))]
    rows = [line for line in lines if "hash" in line]
    assert len(rows) == office.json("verify")["rows"] and lines[0]["whole"] is True
    assert {row["kind"] for row in rows} >= {"enqueued", "claimed", "intended", "confirmed", "finished"}
    assert lines[-1]["rows"] == len(rows) and lines[-1]["streams"] == 10


def test_one_task_with_the_keys_that_it_shares(office: Office) -> None:
    lines = [json.loads(line) for line in lines_of(export(office, "one.jsonl", "--task", "inv_1"))]
    streams = {row["stream"] for row in lines if "hash" in row}
    joined = {json.loads(row["body"])["key"] for row in lines if row.get("kind") == "joined"}
    assert streams == {office.task("inv_1")["id"]} | joined and lines[0]["whole"] is False
    assert verified(office, "--export", str(office.folder / "one.jsonl"))["streams"] == len(streams)


def test_a_stretch_of_time_is_chained_to_what_it_says_came_before(signed: Office) -> None:
    rows = [json.loads(line) for line in lines_of(export(signed)) if '"hash"' in line]
    task = signed.task("inv_1")["id"]
    at = [row["at"] for row in rows if row["stream"] == task]
    middle = f"{at[len(at) // 2] / 1000:.3f}"
    moment = signed.python(f"from datetime import *; print(datetime.fromtimestamp({middle}, timezone.utc).isoformat())").strip()
    to = export(signed, "late.jsonl", "--since", moment)
    found = verified(signed, "--export", str(to), *against(signed))
    assert found["whole"] and "begin in the middle: that the rows before were the true ones is not proved" in found["note"]
    assert 0 < found["rows"] < len(rows) and 0 < found["heads"] <= 10
    early = export(signed, "early.jsonl", "--until", moment)
    found = verified(signed, "--export", str(early))
    assert found["whole"] and "go on after the time that was asked for" in found["note"]
    assert "write them the other way round" in words(
        signed.look("audit", "export", "--to", "x", "--since", moment, "--until", "2020-01-01", code=2).stderr
    )
    assert "is no time" in words(signed.look("audit", "export", "--to", "x", "--since", "noon", code=2).stderr)


def test_an_export_of_one_tenant(office: Office) -> None:
    rows = [json.loads(line) for line in lines_of(export(office, "acme.jsonl", "--tenant", "acme")) if '"hash"' in line]
    assert {row["tenant"] for row in rows} == {"acme"}


def test_an_export_is_never_written_over_a_file(office: Office) -> None:
    to = export(office)
    before = to.read_bytes()
    done = office.look("audit", "export", "--to", str(to), code=2)
    assert "name a file that is not there yet" in words(done.stderr) and to.read_bytes() == before
    assert office.look("audit", "export", "--to", "-", "--task", "inv_1").stdout.startswith('{"semel":"journal"')


def nth(lines: Lines, kind: str) -> int:
    return next(n for n, line in enumerate(lines) if f'"kind":"{kind}"' in line)


def without(lines: Lines, n: int) -> Lines:
    return [*lines[:n], *lines[n + 1 :]]


def swapped(lines: Lines, n: int) -> Lines:
    return [*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]]


def edited(lines: Lines, n: int, old: str, new: str) -> Lines:
    assert old in lines[n]
    return [*lines[:n], lines[n].replace(old, new), *lines[n + 1 :]]


def without_a_stream(lines: Lines) -> Lines:
    heads = [n for n, line in enumerate(lines) if line.startswith('{"stream":')]
    return [*lines[: heads[1]], *lines[heads[2] :]]


@pytest.mark.parametrize(
    ("change", "what", "said"),
    [
        (lambda f: edited(f, nth(f, "intended"), "1200", "9"), "changed", "(intended) was changed"),
        (lambda f: without(f, nth(f, "intended")), "removed", "is missing"),
        (lambda f: without(f, nth(f, "finished")), "truncated", "and the stream stood at"),
        (lambda f: swapped(f, nth(f, "claimed")), "moved", ""),
        (without_a_stream, "removed", "its last line counts 10 streams"),
        (lambda f: f[:-1], "truncated", "its last line is missing"),
        (lambda f: f[:1], "truncated", "its last line is missing"),
        (lambda f: [*f, f[1]], "changed", "it stands after the end"),
        (lambda f: edited(f, 0, '"epoch":', '"epoch":1'), "changed", "its digest is another"),
        (lambda f: edited(f, 1, '"after":0', '"after":1'), "moved", "row 1 stands after row 1"),
        (lambda f: [*f[:5], "nonsense\n", *f[5:]], "changed", "line 6 is not what semel has written"),
        (lambda f: [], "removed", "the file is empty"),
    ],
)
def test_what_was_done_to_an_export_is_named(
    signed_once: Office, exported_once: Path, tmp_path: Path, change: Callable[[Lines], Lines], what: str, said: str
) -> None:
    to = tmp_path / "out.jsonl"
    to.write_text("".join(change(lines_of(exported_once))))
    done = signed_once.look("audit", "verify", "--export", str(to), code=1)
    assert done.stdout.startswith("BROKEN  ") and [line for line in done.stdout.splitlines() if len(line) > 80] == []
    wrong = verified(signed_once, "--export", str(to), code=1)["wrong"]
    assert any(one["what"] == what and said in one["text"] for one in wrong), wrong


def test_an_export_of_a_history_that_was_written_anew_does_not_hold_what_was_signed(signed: Office) -> None:
    """The forger's file is whole by itself; only the heads show it."""
    program = (
        "import sys, apsw; sys.path.insert(0, sys.argv[2]); import tampering_lab as lab\n"
        "db = apsw.Connection(sys.argv[1])\n"
        "for (name,) in db.execute(\"SELECT name FROM sqlite_master WHERE type = 'trigger'\").fetchall():\n"
        "    db.execute(f'DROP TRIGGER {name}')\n"
        "run = lambda sql, *v: db.execute(sql.format(s='', v='?'), v).fetchall()\n"
        "lab.write_anew(run, lab.stream_of(run, 'inv_1'), '1200', '9200')\n"
    )
    signed.python(program, str(signed.store), str(Path(__file__).parent.parent))
    to = export(signed)
    assert verified(signed, "--export", str(to))["whole"]
    found = verified(signed, "--export", str(to), *against(signed), code=1)
    assert [one["what"] for one in found["wrong"]] == ["rewritten"]
    assert "rewritten" in {one["what"] for one in verified(signed, *against(signed), code=1)["wrong"]}


def test_an_export_of_another_store_is_not_taken_for_this_ones(signed: Office, fresh: Office) -> None:
    fresh.python("import clerk; clerk.count.enqueue(0); clerk.app.close()")
    to = export(fresh)
    found = verified(signed, "--export", str(to), *against(signed), code=1)
    assert [one["what"] for one in found["wrong"]] == ["replaced"]
    fresh_store = json.loads(fresh.look("audit", "verify", *against(signed), "--json", code=1).stdout)
    assert [one["what"] for one in fresh_store["wrong"]] == ["replaced"]


def test_a_stream_that_lost_its_end_is_missed_in_a_whole_export_too(signed: Office) -> None:
    signed.python(TAMPER, str(signed.store), f"DELETE FROM journal WHERE stream = {OF_1} AND kind = 'finished'")
    to = export(signed)
    found = verified(signed, "--export", str(to), *against(signed), code=1)
    assert [one["what"] for one in found["wrong"]] == ["truncated"]


def test_a_file_that_is_no_export_is_said_to_be_none(office: Office) -> None:
    (office.folder / "notes.txt").write_text("import semel\n" * 40)
    told = office.look("audit", "verify", "--export", str(office.folder / "notes.txt"), code=1).stdout
    assert words(told) == "BROKEN notes.txt holds nothing that semel has exported: is it the right file?"
