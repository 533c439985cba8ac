"""Files that an audit writes and reads: made whole or not at all, for their owner alone; read line by line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from semel.errors import Misuse

LONGEST = 1 << 28  # bytes of one line: a row holds at most a few MiB


@contextlib.contextmanager
def create(path: Path, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """A new file, on the disk when the block ends, and not there if it fails. Raises `Misuse` if there is one already."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists():
            raise FileExistsError(17, "it is there already")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.link(part, path)  # never over one that another has made meanwhile
            finally:
                part.unlink()
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Misuse(
            f"{path} cannot be made ({error.strerror}); name a file that is not there yet, where you may write"
        ) from error


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, with their ends. Raises `Misuse`."""
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST):
                yield line
    except OSError as error:
        raise Misuse(f"{path} cannot be read ({error.strerror}); name a file that is there") from error
