"""`semel enqueue`: arguments from a command line, the same key the same task, and every mistake named."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from cli_office import Office

import semel
from semel.cli import asks
from semel.errors import Misuse


def test_the_same_key_is_the_same_task(fresh: Office) -> None:
    first = fresh.semel("enqueue", "clerk:app", "bill", "inv_9").stdout.split()
    assert first[1:] == ["new"] and len(first[0]) == 36
    again = fresh.semel("enqueue", "clerk:app", "bill", "invoice=inv_9").stdout
    assert again == f"{first[0]}  exists already: queued, not_started\n"
    other = fresh.semel("enqueue", "clerk:app", "bill", "inv_9", "cents=7").stdout
    assert "It keeps the arguments that it was first accepted with:" in other and '"cents": 1200' in other
    found = json.loads(fresh.semel("enqueue", "clerk:app", "bill", "inv_9", "7", "--json").stdout)
    assert found == {
        "id": first[0], "tenant": "default", "kind": "bill", "key": "inv_9", "new": False, "same_args": False,
        "delivery": "queued", "execution": "not_started",
    }  # fmt: skip
    assert fresh.json("tasks")["counts"]["delivery"] == {"queued": 1}


def test_key_tenant_and_priority(fresh: Office) -> None:
    made = fresh.semel("enqueue", "clerk:app", "bill", "inv_9", "--key", "mine", "--tenant", "acme", "--priority", "5", "--json")
    found = json.loads(made.stdout)
    assert (found["key"], found["tenant"], found["new"]) == ("mine", "acme", True)
    shown = fresh.json("show", "mine", "--tenant", "acme")
    assert shown["task"]["priority"] == 5 and shown["task"]["queue"] == "billing"
    assert fresh.json("why", "mine", "--tenant", "acme")["story"][0]["actor"] == "cli"


def test_many_come_line_by_line(fresh: Office) -> None:
    lines = '["inv_1"]\n\n{"cents": 7, "invoice": "inv_2"}\n["inv_1", 9]'
    done = fresh.look("enqueue", "clerk:app", "bill", "--lines", "--json", given=lines)
    first, second, again = json.loads(done.stdout)["ids"]
    assert again == first and [row["id"] for row in fresh.json("tasks")["tasks"]] == [second, first]
    assert "3 tasks accepted" in fresh.look("enqueue", "clerk:app", "bill", "--lines", given=lines).stdout
    assert fresh.json("why", "inv_2")["story"][0]["actor"] == "cli"


@pytest.mark.parametrize(
    ("lines", "more", "words"),
    [
        ('["a"]\n["b", "much"]', [], "line 2 of the standard input: task bill: cents is not a int"),
        ('["a"]\n"b"', [], "line 2 of the standard input: it is neither an array of arguments nor an object"),
        ('["a"]\n[NaN]', [], "line 2 of the standard input: NaN is no JSON"),
        ('["a"]', ["b"], "--lines takes arguments from the standard input"),
        ('["a"]', ["--key", "k"], "leave out ARGS, --key"),
    ],
)
def test_a_wrong_line_is_named_and_none_is_accepted(fresh: Office, lines: str, more: list[str], words: str) -> None:
    done = fresh.look("enqueue", "clerk:app", "bill", *more, "--lines", given=lines, code=2)
    assert words in " ".join(done.stderr.split()) and done.stdout == ""
    assert not fresh.store.exists() or fresh.json("tasks")["tasks"] == []


def test_lines_that_are_no_text_are_told_of_without_a_traceback(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/a.db")

    @app.task(intent=("invoice",))
    def bill(invoice: str) -> str:
        return invoice

    lines = io.TextIOWrapper(io.BytesIO(b'["a"]\n["\xff"]\n'), "utf-8")
    with pytest.raises(Misuse, match=r"the standard input is not UTF-8 text: .*; nothing is accepted"):
        asks.accept_lines(app, "bill", lines, tenant=None, priority=0)
    assert not app.tasks.list()
    app.close()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["clerk:app", "bill"], "missing a required argument: 'invoice'"),
        (["clerk:app", "bill", "7"], "invoice is not a str"),
        (["clerk:app", "bill", "inv", "much"], "cents is not a int"),
        (["clerk:app", "bill", "inv", "price=7"], "unexpected keyword argument 'price'"),
        (["clerk:app", "bill", "cents=7", "inv"], "comes after a named argument"),
        (["clerk:app", "bill", "cents=7", "cents=8", "invoice=a"], "cents is given twice"),
        (["clerk:app", "bil", "inv"], "declares no task 'bil'; it has: bill, count,"),
        (["clerk:app", "bill", "inv", "--priority", "5000"], "priority must be an int from -1000 to 1000"),
        (["clerk:app", "bill", "inv", "--key", ""], "key must be text that is not empty"),
        (["clerk:nothing", "bill", "inv"], "module clerk has no app of that name (it has no 'nothing'); write clerk:app"),
        (["clerk:act", "bill", "inv"], "('act' is a function); write clerk:app"),
        (["nowhere:app", "bill", "inv"], "there is no module 'nowhere'"),
        (["clerk.deep:app", "bill", "inv"], "there is no module 'clerk.deep'"),
        (["clerk", "bill", "inv"], "'clerk' names no app; write MODULE:app"),
        (["./clerk.py:app", "bill", "inv"], "is a file, and a module is wanted; write clerk:app"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_and_nothing_is_accepted(fresh: Office, args: list[str], words: str) -> None:
    done = fresh.look("enqueue", *args, code=2)
    assert words in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
    if fresh.store.exists():
        assert fresh.json("tasks")["tasks"] == []


def test_a_module_that_cannot_be_imported_is_told_with_its_line(fresh: Office) -> None:
    for name, text, code, words in (
        ("needs_more", "import semel\nimport not_there_at_all\n", 2, "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("half", "x = \n", 2, "SyntaxError: invalid syntax"),
        ("wrong_name", "app = semel.App()\n", 2, "NameError: name 'semel' is not defined"),
        ("down", "raise OSError('the database is down')\n", 1, "OSError: the database is down"),
        ("misused", "import semel\napp = semel.App('mysql://x')\n", 2, "no scheme that semel knows"),
    ):
        (fresh.folder / f"{name}.py").write_text(text, encoding="utf-8")
        done = fresh.semel("enqueue", f"{name}:app", "bill", "inv", code=code)
        assert words in done.stderr and "Traceback" not in done.stderr
        assert name == "misused" or f"{name}.py, line {text.count(chr(10)) if name != 'half' else 1})" in done.stderr


def test_modules_are_found_in_the_current_folder(fresh: Office) -> None:
    package = fresh.folder / "here" / "firm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(
        "import semel\nclass held:\n    app = semel.App()\n@held.app.task()\ndef job(n: int) -> int:\n    return n\n",
        encoding="utf-8",
    )
    assert "new" in fresh.semel("enqueue", "firm.jobs:held.app", "job", "--key", "k", "--", "-1", cwd=package.parent).stdout
    assert fresh.json("show", "k")["task"]["args"] == {"n": -1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inv_42", "inv_42"), ("42", 42), ('"42"', "42"), ("1.5", 1.5), ("true", True), ("null", None),
        ('{"a": [1]}', {"a": [1]}),
        ("NaN", "NaN"), ("-Infinity", "-Infinity"), ("", ""), ("{half", "{half"), ("2024-01-01", "2024-01-01"),
    ],
)  # fmt: skip
def test_values_are_json_where_they_parse(text: str, value: object) -> None:
    found = asks.parsed(text)
    assert found == value and type(found) is type(value)


def test_names_are_told_from_values() -> None:
    assert asks.arguments(["a", "b=1", "c==", "d=x=y"]) == (("a",), {"b": 1, "c": "=", "d": "x=y"})
    assert asks.arguments(["1=2", '"a=b"', "http://x?a=b", "a b=c"]) == (("1=2", "a=b", "http://x?a=b", "a b=c"), {})
    with pytest.raises(Misuse, match="given twice"):
        asks.arguments(["a=1", "a=2"])
