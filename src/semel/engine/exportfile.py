"""A file of exported rows: what was written into it is on the disk when `write` returns, and no line of it is torn."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from semel.errors import Misuse
from semel.machine.export import line_of, row_of
from semel.machine.journal import Row


class ExportFile(AbstractContextManager["ExportFile"]):
    """Made if it is not there (for its owner alone), else written on. One process at a time. Raises `Misuse`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Misuse(f"the export {self.path} cannot be written ({error.strerror}); name another file") from error
        try:
            self._begin()
        except BaseException:
            os.close(self._fd)
            raise

    def _begin(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise Misuse(f"the export {self.path} is not a file, so nothing in it would last; name a file")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Misuse(f"another process writes the export {self.path}; wait for it, or name another file") from error
        whole = self._whole()
        if whole < os.fstat(self._fd).st_size:  # of one that was killed: what was torn was not yet taken from the store
            os.ftruncate(self._fd, whole)
        os.fsync(self._fd)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _whole(self) -> int:
        """Up to where it holds whole lines. Raises `Misuse` for a file of something else."""
        size = os.fstat(self._fd).st_size
        end, step = size, 1 << 20
        while end and os.pread(self._fd, 1, end - 1) != b"\n":
            start = max(0, end - step)
            end = start + os.pread(self._fd, end - start, start).rfind(b"\n") + 1
        with self.path.open("rb") as first:
            line = first.readline()
        try:
            if line.endswith(b"\n"):
                row_of(line.decode())
            elif line and not line.startswith(b'{"tenant":'):
                raise ValueError
        except ValueError:
            raise Misuse(f"{self.path} is not an export of semel's, and is left as it is; name another file") from None
        return end

    def write(self, rows: Iterable[Row]) -> None:
        """Append these rows, a line each, durably. Raises `Misuse` if the disk does not take them."""
        data = "".join(line_of(row) + "\n" for row in rows).encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            raise Misuse(
                f"the export {self.path} could not be written ({error.strerror}): nothing that is not in it was pruned; make "
                f"room, or name another file"
            ) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._fd)
