"""Compact JSON text. `json.dumps` makes an encoder for each value that it writes; here one is made once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def encoder(*, ascii_only: bool = False, in_order: bool = False) -> Callable[[Any], str]:
    """Writes a value as `json.JSONEncoder` does, without spaces. in_order: of the names.

    Raises `ValueError` for NaN and infinities, `TypeError` for what is not JSON, `RecursionError` for what holds itself.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    plain = json.JSONEncoder(ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, sort_keys=in_order)
    if make is None:  # a Python without that part in C
        return plain.encode
    texts = json.encoder.encode_basestring_ascii if ascii_only else json.encoder.encode_basestring
    chunks = make(None, plain.default, texts, None, ":", ",", in_order, False, False)
    return lambda value: "".join(chunks(value, 0))


compact = encoder()
