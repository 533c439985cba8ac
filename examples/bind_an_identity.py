"""Orders only as whom it should: the profile's login is looked at just before each order is sent.

A shopping agent is bound to the account alice. Somebody else is logged in when it wants to order; then nobody is; then the
order is placed and its answer lost, and the login is gone when it is to be looked up. Each time the task is held, nothing is
sent, and a person logs in again. The shop's own record is counted at the end.

    python examples/bind_an_identity.py
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import semel
from semel.testing.provider import Provider, get, post

folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
shop = Provider.start(folder / "shop.db")
app = semel.App(f"sqlite:///{folder}/agent.db")
login = folder / "login"  # it stands for a browser profile, whose page says who is logged in


def logged_in() -> dict[str, str]:
    """As whom an order would be sent, as seen now. It reads, and changes nothing."""
    if not login.exists():
        raise PermissionError("the shop asks for a login")
    return {"account": login.read_text(), "target": shop.url}


def find_order(submission: semel.Submission) -> semel.Verdict:
    """The orders of whoever is logged in; so this is asked as alice alone."""
    found = get(f"{shop.url}/looked/order?marker={submission.key}", timeout=submission.seconds_left)
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(intent=("item",), identity=logged_in, recovery=semel.Lookup(find_order, settle=timedelta(seconds=0.2)))
def order(submission: semel.Submission, item: str) -> str:
    """Order an item."""
    body = {"marker": submission.key, "item": item}
    try:
        reply = post(f"{shop.url}/looked/order", body, token=submission.token, timeout=submission.seconds_left)
    except OSError:
        login.unlink()  # the shop has logged everybody out, too
        raise
    return str(reply["id"])


@app.task(intent=("item",))
def shopping(item: str) -> str:
    """Buy it, as alice, in this shop."""
    semel.bind(account="alice", target=shop.url)
    return order(item)


def tries() -> None:
    """One attempt, and what came of it."""
    try:
        print(f"ordered: {bool(shopping.run('book'))}")
    except semel.Unsettled as held:
        print(f"{held.why}: {str(held).partition('identity_mismatch: ')[2].partition('; see')[0]}; orders: {shop.count('order')}")
        app.review.replay(held.ref, by="ann", reason="I logged in again")  # semel replay TASK --by ann


def main() -> None:
    login.write_text("bob")
    tries()
    login.unlink()
    tries()
    login.write_text("alice")
    shop.fault("cut_after", action="order")  # it is ordered, and the answer never arrives
    tries()
    login.write_text("alice")
    tries()
    print(f"orders placed: {shop.count('order')}")


if __name__ == "__main__":
    with shop:
        main()
