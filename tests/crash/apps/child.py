"""An effect that acts through a child process (a shell, a browser), which is slower than its worker's death."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from agent import RETRY, app
from wire import find

import semel

SCRIPT = Path(__file__).with_name("child_posts.py")


def find_browse(submission: semel.Submission) -> semel.Verdict:
    return find(submission, "browse")


@app.effect(
    intent=("ref",),
    recovery=[semel.Lookup(find_browse, settle=timedelta(seconds=0.3)), semel.Ask(settle=timedelta(seconds=0.3))],
)
def browse(submission: semel.Submission, ref: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), submission.key, ref], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


@app.task(intent=("ref",), retry=RETRY)
def browse_work(ref: str) -> str:
    return browse(ref)
