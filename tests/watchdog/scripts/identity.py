"""Identities in and around PID namespaces."""

import ctypes
import dataclasses
import json
import os
import signal
import sys

from watchdog_lab import Forked

from semel.watchdog import Identity, proof_of_death

CLONE_NEWPID = 0x20000000


def show() -> None:
    """Print who we are, and stay until stdin is closed."""
    print(json.dumps(dataclasses.asdict(Identity.own())), flush=True)
    sys.stdin.read()


def foreign_proc() -> None:
    """Run in a new PID namespace with the old one's /proc, where our pids are other processes."""

    def stay(say: object) -> None:
        say(json.dumps(dataclasses.asdict(Identity.own())).encode())  # type: ignore[operator]
        signal.pause()

    child = Forked(stay)
    other, own = Identity(**json.loads(child.read(4096))), Identity.own()
    alive = proof_of_death(other, own)
    os.kill(child.pid, signal.SIGKILL)
    child.end()
    print(json.dumps({"same_namespace": other.pid_ns == own.pid_ns, "alive": alive, "dead": proof_of_death(other, own)}))


def stale_own() -> None:
    """`own` was read before a fork into a new namespace, where a living process of the old one is not to be found."""
    own = Identity.own()
    living = Forked(lambda _: signal.pause())
    other = dataclasses.replace(own, pid=living.pid)
    assert ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0

    def ask(say: object) -> None:
        try:
            os.kill(other.pid, 0)
            known = True
        except ProcessLookupError:
            known = False
        answer = {"known": known, "proof": proof_of_death(other, own)}
        say(json.dumps(answer).encode())  # type: ignore[operator]

    said = Forked(ask).end()["said"]
    os.kill(living.pid, signal.SIGKILL)
    print(said)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
