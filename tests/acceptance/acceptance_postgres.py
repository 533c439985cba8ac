"""The server that pages about PostgreSQL speak of: they name an address, and here it is a throwaway one's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

ADDRESS_IN_PAGES = "127.0.0.1:5432"
sys.path.append(str(Path(__file__).resolve().parents[1] / "postgres"))


@contextlib.contextmanager
def server_for(text: str) -> Iterator[tuple[str, str]]:
    """Its address, and the folder of its programs, for a page that names one; else two empty texts."""
    if ADDRESS_IN_PAGES not in text:
        yield "", ""
        return
    import cluster

    server = cluster.Cluster(settings="autovacuum = on")
    try:
        yield f"127.0.0.1:{server.port}", str(server.bin)
    finally:
        server.close()
