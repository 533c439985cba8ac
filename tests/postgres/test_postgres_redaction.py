"""Redaction where the effect's confirm is written in the transaction of its own writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import semel

CARD = "4929123456789012"


@pytest.mark.parametrize("ends", ["returns", "raises", "refuses"])
def test_an_atomic_effect_records_nothing_of_what_is_redacted(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setenv("SEMEL_REDACTION_KEY", "5e" * 32)
    app = semel.App(database)

    @app.effect(intent=("ref",), redact=("card",), recovery=semel.Atomic(), tries=1)
    def pay(submission: semel.Submission, ref: str, card: str) -> str:
        submission.connection.execute("SELECT 1")
        if ends == "raises":
            raise ValueError(f"no such card: {card}")
        if ends == "refuses":
            raise semel.NotDone(f"no such card: {card}", retry=False)
        return f"paid with {card}"

    try:
        with app.work("w", kind="k") as work:
            if ends == "returns":
                assert pay("r", CARD) == "paid with [redacted]"
            else:
                with pytest.raises((ValueError, semel.NotDone)):
                    pay("r", CARD)
        told = str(app.journal(work.ref))
        assert ("paid with [redacted]" if ends == "returns" else "no such card: [redacted]") in told and CARD not in told
    finally:
        app.close()
