"""Every example runs by itself, as a user would start it, and prints what it shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from acceptance_pages import ROOT
from acceptance_shell import environment

SAYS = {
    "own_loop.py": [
        "attempt 1", "broke down: the model's API is down", "attempt 2", "already_done", "refunds made: 1, replies sent: 1",
    ],
    "limits.py": [
        "attempt 1", "refund, for reason 1.0 -> act_", "limit_reached: refund may happen 1 time per task, and has",
        "broke down: the model's API is down", "attempt 2", "limit_reached", "dead_lettered: spent 1.05 usd of 1",
        "refunds made: 1",
    ],
    "webhook_twice.py": [
        "8 deliveries, 1 task; 2 cron jobs, 1 task",
        "nightly_report report-2031-05-01: succeeded, 1 attempt; the report of 2031-05-01",
        "triage d-7894: succeeded, 1 attempt; issue 42 was triaged for d-7894",
    ],
    "conditional_write.py": [
        "2 PUTs, 1 written: the second found ours", "not released: releases/1.0 is taken by somebody else", "1.1 is unknown",
        "1.1 is blocked: conflict: releases/1.1 is there, and does not bear our key", "1.1 is confirmed, on Ann's word",
    ],
    "redacted_card.py": [
        "found:    act_", "answered: act_", "for card [redacted]", "order-1, tok_ada, 4200", "'semel:redacted': 'hmac-sha256:",
        "was it 4929123456789012? True", "was it 4929999999999999? False", "in the store: True - the card is: False",
    ],
    "crash_and_recover.py": [
        "in the call: delivery leased, execution running, effect submitted",
        "worked on:   delivery acknowledged, execution succeeded, effect confirmed, attempt 2",
        "mails sent:  1; the task's result: act_", "lost", "lease_lost", "found", "finished",
    ],
    "one_transaction.py": [
        "orders: ['o2', 'o3']", "tasks:  ['o2', 'o3']",
        "cut before the server heard of it: paid o2; intended void disproved intended confirmed finished",
        "cut after the server heard of it: paid o3; intended confirmed finished",
        "payments: [('o2', 4200), ('o3', 4200)]",
    ],
    "bind_an_identity.py": [
        "account is bound to 'alice', and 'bob' is observed; orders: 0", "PermissionError: the shop asks for a login; orders: 0",
        "PermissionError: the shop asks for a login; orders: 1", "ordered: True", "orders placed: 1",
    ],
    "pydantic_ai_agent.py": [
        "tools: refund(order_id, cents) send_mail(order_id, text)", "attempt 2", "already_done",
        "result: The customer has the money and knows it.", "refunds made: 1, mails sent: 1",
    ],
}  # fmt: skip


def test_every_example_is_run_here() -> None:
    assert {file.name for file in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example(name: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    at = 0
    for line in SAYS[name]:
        assert line in ran.stdout[at:], f"{line!r} was not printed (in this order):\n{ran.stdout}"
        at = ran.stdout.index(line, at) + len(line)
    assert not list(tmp_path.iterdir()), "an example keeps its files to itself"
