"""Workers for the supervisor's tests: `worker.py MODE DIRECTORY`. They write down what they do; no semel here."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Waits for the file `go` and then acts: that it has not acted yet is no matter of time
ACT = 'echo $$ > "$0.tmp"; mv "$0.tmp" "$0.pid"; while ! [ -e go ]; do sleep 0.02; done; echo acted > "$0.acted"'


def note(name: str, text: object = "") -> None:
    """Written whole or not at all, for those who wait for it."""
    Path(f"{name}.tmp.{os.getpid()}").write_text(str(text))
    Path(f"{name}.tmp.{os.getpid()}").rename(name)


def family() -> None:
    """The first one makes a child, a grandchild that leaves the group, and a daemon; the next one looks for them."""
    if Path("first").exists():
        pids = [int(path.read_text()) for path in Path().glob("*.pid")]
        note("second", [pid for pid in pids if Path(f"/proc/{pid}").exists()])
        time.sleep(60)
    note("first", os.getpid())
    subprocess.Popen(["sh", "-c", ACT, "plain"])
    subprocess.Popen(["sh", "-c", 'setsid sh -c "$1" grandchild & wait', "sh", ACT])
    subprocess.run(["sh", "-c", 'setsid sh -c "$1" daemon &', "sh", ACT], check=True)
    while len(list(Path().glob("*.pid"))) < 3:
        time.sleep(0.005)
    note("ready")
    time.sleep(60)


def stopping() -> None:
    """What SIGTERM does is said by the directory: finish, or only count, or nothing."""
    terms = []

    def on_term(*_: object) -> None:
        terms.append(1)
        note(f"term{len(terms)}.{os.getpid()}")

    signal.signal(signal.SIGTERM, on_term)
    kind = Path("kind").read_text()
    note(f"up.{os.getpid()}")
    while True:
        time.sleep(0.01)
        if kind == "graceful" and terms:
            time.sleep(0.2)
            note(f"finished.{os.getpid()}")
            sys.exit(0)
        if kind == "stubborn" and len(terms) == 2:
            sys.exit(7)


def crashing() -> None:
    note(f"start.{time.monotonic():018.6f}")
    sys.exit(1)


def ending() -> None:
    note(f"start.{os.getpid()}", os.environ["SEMEL_SUPERVISOR"])
    sys.exit(int(Path("code").read_text()))


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    globals()[sys.argv[1]]()
