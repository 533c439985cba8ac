"""A folder with a store, and the commands run on it: in this process where they only look, else in their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from semel.cli import main

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
COLOUR = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "NO_COLOR")
FILL = """
from datetime import datetime, timedelta, timezone
import clerk
for invoice in ("inv_1", "inv_cut"):
    clerk.bill.enqueue(invoice)
clerk.spoil.enqueue("inv_s")
clerk.reword.enqueue("inv_r")
clerk.repeat.enqueue("inv_p")
clerk.signed.enqueue("inv_g")
clerk.count.using(tenant="acme", key="inv_acme").enqueue(1, "\\x1b[31mred\\x1b[0m\\n\\u202etext")
tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
clerk.count.using(tenant="acme", key="inv_later", run_at=tomorrow).enqueue(2)
clerk.app.close()
"""


@dataclass
class Office:
    """A folder with a store, and the commands run on it in processes of their own."""

    folder: Path
    more: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.folder / "office.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.store}"

    @property
    def world(self) -> list[str]:
        file = self.folder / "world"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "FORCE_", "CLERK_"))}
        path = os.pathsep.join([str(SOURCE), str(HERE / "apps")])
        return {
            **kept, "PYTHONPATH": path, "SEMEL_STORE": self.url, "CLERK_WORLD": str(self.folder / "world"), "COLUMNS": "80",
            "TERM": "xterm-256color", "TZ": "UTC", **self.more,
        }  # fmt: skip

    def semel(self, *args: str, code: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; `code`: the exit code that it must have."""
        command = [sys.executable, "-m", "semel", *args]
        done = subprocess.run(command, env=self.env, cwd=cwd or self.folder, capture_output=True, text=True, timeout=100)
        assert code is None or done.returncode == code, f"semel {args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def look(self, *args: str, code: int = 0, given: str | None = None) -> Result:
        """Run one command in this process, which is quicker; `code`: the exit code that it must have."""
        env = {**dict.fromkeys(COLOUR), "SEMEL_STORE": self.url, "COLUMNS": "80", "CLERK_WORLD": str(self.folder / "world")}
        sys.modules.pop("clerk", None)  # it takes its store from the environment when it is imported
        done = CliRunner().invoke(main.cli, args, env=env, input=given)
        assert done.exit_code == code, f"semel {args}: {done.exit_code}\n{done.output}\n{done.exception!r}"
        return done

    def json(self, *args: str) -> Any:
        """What a command gives to programs."""
        return json.loads(self.look(*args, "--json").stdout)

    def task(self, key: str) -> dict[str, Any]:
        """The one task of that key."""
        found: list[dict[str, Any]] = [task for task in self.json("tasks")["tasks"] if task["key"] == key]
        assert len(found) == 1
        return found[0]

    def effect(self, key: str, name: str) -> dict[str, Any]:
        """The one effect of that name, of the task of that key."""
        found: list[dict[str, Any]] = [x for x in self.json("show", key)["effects"] if x["name"] == name]
        assert len(found) == 1
        return found[0]

    def python(self, program: str, *args: str) -> str:
        """Run a program to its end; what it wrote."""
        done = subprocess.run(
            [sys.executable, "-c", program, *args], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=100
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a command; it is ended with the test, at the latest."""
        log = (self.folder / f"log{len(self.started)}").open("w", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "semel", *args], env=self.env, cwd=self.folder, stdout=log, stderr=log, text=True
        )
        log.close()
        self.started.append(process)
        return process

    def start_python(self, program: str) -> subprocess.Popen[str]:
        """Start a program; it is ended with the test, at the latest."""
        process = subprocess.Popen([sys.executable, "-c", program], env=self.env, cwd=self.folder, text=True)
        self.started.append(process)
        return process

    def log(self, n: int = 0) -> str:
        return (self.folder / f"log{n}").read_text(encoding="utf-8")

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()  # its workers die with it
            process.wait(timeout=30)


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
