"""The same, with real files: the shipped store as it is opened in earnest, with its three connections and shared memory.

The VFS is SQLite's own, made the default for a while, and what passes through it is logged. The files lie in a folder in
memory; what a power cut leaves is written into a new one.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from powercut_disk import DELETE, FOLDER, NEW_JOURNAL, SYNC, TRUNCATE, WRITE, Disk, Image

MEMORY = Path("/dev/shm")
LOGGED = (apsw.SQLITE_OPEN_MAIN_DB, apsw.SQLITE_OPEN_WAL, apsw.SQLITE_OPEN_MAIN_JOURNAL)


class RealDisk(Disk):
    """A folder, and the log of what was done to its files."""

    vfs = None

    def __init__(self, image: Image | None = None, **others: Any) -> None:
        self.folder = tempfile.mkdtemp(prefix="semel-powercut-", dir=MEMORY if MEMORY.is_dir() else None)
        super().__init__(image, name=self.folder)
        for name, data in self.image.items():
            (Path(self.folder) / name).write_bytes(data)
        if image:  # the shared memory is a file too, which nobody syncs: after a power cut it is nothing, or anything
            dice = random.Random(sum(map(len, self.image.values())))
            if dice.random() < 0.7:
                (Path(self.folder) / "agent.db-shm").write_bytes(
                    dice.choice((bytes, dice.randbytes))(dice.choice((32_768, 5_000)))
                )
        self.files.clear()  # the kernel has them
        _folders[self.folder] = self

    def remove(self) -> None:
        """The folder is gone."""
        super().remove()
        _folders.pop(self.folder, None)
        shutil.rmtree(self.folder)


_folders: dict[str, RealDisk] = {}


def _plain(name: Any) -> str:
    return name if isinstance(name, str) else name.filename() if name is not None else ""


class _File(apsw.VFSFile):
    """A file of such a folder."""

    def __init__(self, disk: RealDisk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self.disk, self.node = disk, disk.open(os.path.split(_plain(name))[1], flags[0])
        self.syncs_folder = bool(flags[0] & NEW_JOURNAL and flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self.disk.log.append((WRITE, self.node, offset, data))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self.disk.log.append((TRUNCATE, self.node, size))

    def xSync(self, flags: int) -> None:
        self.disk.log.append((SYNC, self.node))
        if self.syncs_folder:
            self.disk.log.append((FOLDER,))
        self.syncs_folder = False


class _Recorder(apsw.VFS):
    """SQLite's own VFS; it tells the disk of a file's folder what is done to the file."""

    NAME = "semel-powercut-recorder"

    def __init__(self) -> None:
        super().__init__(self.NAME, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        disk = _folders.get(os.path.split(_plain(name))[0])
        return super().xOpen(name, flags) if disk is None else _File(disk, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        super().xDelete(name, sync)
        folder, file = os.path.split(name)
        if (disk := _folders.get(folder)) is not None:
            disk.names.pop(file, None)
            disk.log.append((DELETE, file))
            if sync:
                disk.log.append((FOLDER,))


_recorder = _Recorder()


@contextmanager
def recorded() -> Iterator[None]:
    """Whoever opens a database here goes through the recorder."""
    apsw.set_default_vfs(_Recorder.NAME)
    try:
        yield
    finally:
        apsw.set_default_vfs("unix")
