"""The server that pages about PostgreSQL speak of: they name an address, and here it is a throwaway one's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from semel.testing.postgres import Cluster

ADDRESS_IN_PAGES = "127.0.0.1:5432"


@contextlib.contextmanager
def server_for(text: str) -> Iterator[tuple[str, str]]:
    """Its address, and the folder of its programs, for a page that names one; else two empty texts."""
    if ADDRESS_IN_PAGES not in text:
        yield "", ""
        return
    server = Cluster(settings="autovacuum = on")
    try:
        yield f"127.0.0.1:{server.port}", str(server.bin)
    finally:
        server.close()
