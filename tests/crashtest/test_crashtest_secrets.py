"""What a crash test tells, and what others on the machine can see of it, holds no values of the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from semel.testing.crashtest.room import Setting
from semel.testing.crashtest.wire import Request, program_of, tame_path, tame_sql
from semel.testing.crashtest.world import Child


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/services/T000/B000/WEBHOOKSECRET", "/services/…"),
        ("/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage", "/…"),
        ("/v1/charges?card=4242", "/v1/…"),
        ("/charge?card=4242", "/charge"),
        ("/", "/"),
        ("http://shop.example/x", "/…"),
        ("/users.list", "/users.list"),
        ("/4242424242424242", "/…"),
    ],
)
def test_of_a_urls_path_the_first_segment_is_told(path: str, told: str) -> None:
    assert tame_path(path) == told
    assert str(Request("POST", path, "shop.example")) == f"POST {told}"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("insert into t values ('4242-CARD-4242')", "insert into t values ( …"),
        ("INSERT INTO t2 (a) VALUES (4242, 'x')", "INSERT INTO t2 (a) VALUES ( …"),
        ('update "t"\n set a = 4242', "update t set a = …"),
        ('update t set a = "4242-CARD"', "update t set a = …"),
        ("delete from t where a = x'4242'", "delete from t where a = …"),
        ("delete from t /* 4242 */", "delete from t …"),
        ("update t set a = -4242.0", "update t set a = …"),
        ("create table t (x, y)", "create table t (x, y)"),
    ],
)
def test_a_statement_is_told_up_to_its_first_value(statement: str, told: str) -> None:
    assert tame_sql(statement) == told
    assert "4242" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["curl -H 'Authorization: Bearer 4242' https://x"], "curl"),
        (["TOKEN=4242 curl https://x"], "curl"),
        (["/bin/sh", "-c", "curl 4242"], "/bin/sh"),
        (["/usr/bin/git", "push", "https://u:4242@x"], "/usr/bin/git"),
    ],
)
def test_of_a_process_its_program_is_told(words: list[str], told: str) -> None:
    assert program_of(words) == told


def test_a_workers_command_line_does_not_hold_the_stores_password(tmp_path: Path) -> None:
    """It is read from the standard input, to its end, and nobody else's is."""
    url = "postgresql://ann:SECRET-4242@127.0.0.1:1/none"
    setting = Setting("no_such_module_of_ours:app", url, str(tmp_path), os.getpid(), str(tmp_path / "watch"), 2.0)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = Child(setting, env, tmp_path / "log")
    try:
        line = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        assert b"SECRET" not in line
        assert child.process.wait(30) == 1
        assert "no_such_module_of_ours" in child.said(), "it was told what to do"
        assert "SECRET" not in child.said()
    finally:
        child.kill()
