"""A card number that must be stored nowhere: first by a reference, which is better, then redacted.

`charge` takes the number of a token, and fetches the card inside: nothing secret is ever on record, and what is unknown can
be sent again. `charge_card` is for code that has the card in hand: `redact=` keeps it out of all that is stored, and what is
unknown is looked for by the key.

    python examples/redacted_card.py
"""

from __future__ import annotations

import os
import secrets
import tempfile
from datetime import timedelta
from pathlib import Path

import semel
from semel.testing.provider import Provider, get, post

os.environ.setdefault("SEMEL_REDACTION_KEY", secrets.token_hex(32))  # yours is made once, and kept
folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
provider = Provider.start(folder / "provider.db")
app = semel.App(f"sqlite:///{folder}/agent.db")
VAULT = {"tok_ada": "4929123456789012"}


@app.effect(intent=("order",), recovery=semel.Resend(within=timedelta(hours=24)))
def charge(submission: semel.Submission, order: str, token: str, cents: int) -> str:
    """Charge the card that a token stands for."""
    body = {"order": order, "card": VAULT[token], "cents": cents}
    return str(post(f"{provider.url}/keyed/charge", body, key=submission.key, timeout=submission.seconds_left)["id"])


def find_charge(submission: semel.Submission, order: str) -> semel.Verdict:
    """By our key: a lookup may run in another process, where nobody knows the card."""
    found = get(f"{provider.url}/looked/charge?marker={submission.key}", timeout=submission.seconds_left)
    return semel.Confirmed(found[0]["id"]) if found else semel.NotFound()


@app.effect(intent=("order",), redact=("card",), recovery=semel.Lookup(find_charge, settle=timedelta(seconds=30)))
def charge_card(submission: semel.Submission, order: str, card: str, cents: int) -> str:
    """Charge a card, by a provider that says it back."""
    body = {"marker": submission.key, "order": order, "card": card, "cents": cents}
    id = post(f"{provider.url}/looked/charge", body, timeout=submission.seconds_left)["id"]
    return f"{id} for card {card}"


def main() -> None:
    with app.work("order-1", kind="shop"):
        charge("order-1", "tok_ada", 4200)
    provider.fault("cut_after", action="charge")  # it happens, and the answer never arrives
    with app.work("order-2", kind="shop"):
        print("found:   ", charge_card("order-2", VAULT["tok_ada"], 990))
    with app.work("order-3", kind="shop"):
        print("answered:", charge_card("order-3", VAULT["tok_ada"], 100))
    for effect in sorted(app.effects.list(), key=lambda effect: effect.args["order"]):
        print(f"{effect.name} is {effect.state}; on record:", ", ".join(map(str, effect.args.values())))
    (redacted,) = [effect for effect in app.effects.list() if effect.args["order"] == "order-3"]
    for card in ("4929123456789012", "4929999999999999"):
        print(f"was it {card}?", app.effects.proves(redacted.key, "card", card))
    app.close()  # while it is open, nobody else in this process may open its file
    stored = b"".join(file.read_bytes() for file in folder.glob("agent.db*"))
    print("order-3 is in the store:", b"order-3" in stored, "- the card is:", VAULT["tok_ada"].encode() in stored)


if __name__ == "__main__":
    with provider:
        main()
