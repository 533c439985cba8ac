"""A till that knows cards from elsewhere, and a provider that says them back wherever it can."""

from __future__ import annotations

import logging
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import semel

logging.basicConfig(level=logging.DEBUG)
CARD, PIN = os.environ.get("VAULT_CARD", ""), int(os.environ.get("VAULT_PIN", "0"))
WORLD = Path(os.environ.get("VAULT_WORLD", "."))
SOON = timedelta(seconds=0.3)
app = semel.App(lease=timedelta(seconds=2))


def find(submission: semel.Submission, ref: str) -> semel.Verdict:
    """Says the card back, in a result, in a reason, or in an error."""
    asked = WORLD / f"asked_{ref}"
    if not asked.exists():
        asked.touch()
        raise OSError(f"cannot look for {CARD} now")
    return semel.Confirmed({"id": f"late_{ref}", "card": CARD, "said": f"charged {CARD}, pin {PIN}."})


@app.effect(
    intent=("ref",), redact=("card", "holder"), tries=1,
    recovery=[semel.Lookup(find, settle=timedelta(0))],
)  # fmt: skip
def charge(submission: semel.Submission, ref: str, card: str, holder: dict[str, str | int], note: str) -> dict[str, str]:
    """Charge a card."""
    sent = WORLD / f"charged_{ref}"
    sent.touch()
    if ref == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if ref == "refused":
        raise semel.NotDone(f"{card} is stolen ({holder['pin']})", retry=False, detail={"card": card, "pin": holder["pin"]})
    return {"id": f"ch_{ref}", "echo": f"card={card}&pin={PIN}", "note": note}


@app.effect(intent=("ref",), redact=("card",), timeout=SOON, recovery=semel.Ask(settle=timedelta(0)))
def wire(submission: semel.Submission, ref: str, card: str) -> str:
    """Never answered in time; its answer comes late."""
    (WORLD / f"wired_{ref}").touch()
    if ref == "late":
        time.sleep(0.5)
        raise RuntimeError(f"late: {card}" + "x" * 250 + card)
    raise RuntimeError(("x" * 283) + card)  # cut in the middle of it, if it is cut first


@app.effect(intent=("ref",), redact=("card",), approve=True)
def pay_out(submission: semel.Submission, ref: str, card: str, cents: int) -> str:
    """People must approve it."""
    (WORLD / f"paid_{ref}").write_text(f"{card} {cents}", encoding="utf-8")
    return f"paid to {card}"


@app.task(intent=("ref",), retry=semel.Retry(max_attempts=1))
def till(ref: str, note: str) -> str:
    """One of each."""
    logging.getLogger("till").info("%s", note)
    if ref == "slow":
        time.sleep(0.6)  # until what is late has come
        return ref
    if ref in ("approved", "denied", "other"):
        return pay_out(ref, os.environ.get("VAULT_OTHER") or CARD, 700) if ref == "other" else pay_out(ref, CARD, 700)
    if ref in ("late", "lost"):
        return wire(ref, CARD)
    charged = charge(ref, CARD, {"name": "Ada Lovelace", "pin": PIN}, note)
    if ref == "after":
        raise ValueError(f"no room for {CARD} of Ada Lovelace")
    return f"{charged['id']} {CARD}"
