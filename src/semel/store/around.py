"""What a session looks at beside each beat. A store that is asked over a network answers all of it in one statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from semel.machine import epochs
from semel.machine.journal import GENESIS
from semel.machine.projection import InflightRow, UnknownRow
from semel.store.contract import Around, Head, SessionRow, Store, StoreInfo


def asked_singly(store: Store, session: str, tenant: str | None, most: int) -> Around:
    """One question after the other, where a question costs nothing."""
    return Around(
        store.reread(), store.sessions(), store.head(epochs.TENANT, epochs.STREAM), store.held(session),
        bool(store.orphans(None, 1, tenant)), store.unknown(tenant, limit=most),
    )  # fmt: skip


def answered(info: StoreInfo, row: Sequence[Any]) -> Around:
    """What the one statement gave, behind what the store says of itself."""
    seq, hash, sessions, held, orphans, unknown = row
    return Around(
        info, [SessionRow(*one) for one in json.loads(sessions)], Head(seq, bytes(hash)) if seq else Head(0, GENESIS),
        [InflightRow(*one) for one in json.loads(held)], orphans, [UnknownRow(*one) for one in json.loads(unknown)],
    )  # fmt: skip
