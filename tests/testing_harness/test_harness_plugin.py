"""The pytest plugin, in a run of its own, as a user's tests have it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

USERS = """
import sys

assert not [name for name in sys.modules if name.startswith("semel.") and not name.startswith("semel.testing")]

import asyncio
import pytest
import semel
from semel.testing import Harness

app = semel.App("sqlite:///never.db")

@app.effect(intent=("to",), recovery=semel.Resend(within=None))
def mail(submission: semel.Submission, to: str) -> str:
    return f"to {to}"

@app.task(intent=("to",))
def send(to: str) -> str:
    return mail(to)

@pytest.fixture
def rig(semel_harness):
    harness = semel_harness(app)
    harness.fake(mail, lambda to: f"faked {to}")
    yield harness
    assert app.tasks.list(), "open until here"

def test_passes(rig):
    rig.crash(mail, at="after")
    ref = send.enqueue("ada")
    rig.run()
    assert ref.result() == "faked ada" and len(rig.sent(mail)) == 1

def test_passes_in_a_loop(rig):
    async def main():
        ref = await send.aenqueue("ada")
        await rig.arun()
        return await ref.aresult()
    assert asyncio.run(main()) == "faked ada"

def test_fails_since_no_crash_came(rig):
    send.enqueue("ada")
    rig.crash(mail, at="after")

def test_fails_by_itself(rig):
    rig.crash(mail, at="after")
    send.enqueue("ada")
    assert rig.sent(mail) == "its own failure"

def test_passes_although_others_failed():
    assert app._runtime is None and app._stage is None
    with Harness(app):
        pass
"""


def test_the_fixture_opens_ends_and_tells_of_a_crash_that_never_came(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS)
    command = (sys.executable, "-m", "pytest", "-rA", "-p", "semel.testing.plugin", "-p", "no:cacheprovider", str(tmp_path))
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "COLUMNS": "200"}
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=90).stdout
    told = sorted(
        line.split("test_users.py::")[1] for line in said.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))
    )
    assert told[:1] == ["test_fails_by_itself - AssertionError: assert [] == 'its own failure'"], said
    assert told[1].startswith("test_fails_since_no_crash_came - semel.errors.Misuse: crash(...) was asked for and never came"), (
        said
    )
    assert told[2:] == ["test_passes", "test_passes_although_others_failed", "test_passes_in_a_loop"], said
    assert not (tmp_path / "never.db").exists()


def test_it_is_installed_with_semel() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"semel": "semel.testing.plugin"}
