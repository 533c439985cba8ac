"""A disk that can lose power, lie, fill up and fail, as a SQLite VFS.

It logs what is done to it. What it holds after a power cut at any moment is made from that log: all that was synced, and
of the rest whatever chance leaves: each write kept, lost, torn by sectors of 512 bytes, or its place in the file taken by
zeros or junk; a name that is not synced yet may be missing, or still there. The rules are those of Linux, as SQLite's own
VFS for it uses them: a sync makes durable the one file, and the first sync of a newly opened journal or log its folder too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import apsw

SECTOR = 512
NEW_JOURNAL = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
WRITE, TRUNCATE, SYNC, CREATE, DELETE, FOLDER = "write", "truncate", "sync", "create", "delete", "folder"
FAILED_SYNC = "failed sync"  # the kernel has dropped what was to be written, and calls it clean: chance alone decides of it now
Image = dict[str, bytes]
Op = tuple[Any, ...]  # (WRITE, node, offset, data) (TRUNCATE, node, size) (SYNC, node) (CREATE, name, node) (DELETE, name) ...


class Disk:
    """One disk, as the running machine sees it: names, files, and the log of all that was done since it was switched on."""

    vfs: str | None = "semel-powercut"

    def __init__(self, image: Image | None = None, *, lies: bool = False, sector: int = 4096, name: str = "") -> None:
        self.name = name or f"disk{next(_numbers)}"
        self.image: Image = dict(image or {})
        self.names: dict[str, int] = {}
        self.files: dict[int, bytearray] = {}
        self.log: list[Op] = []
        self.lies, self.sector = lies, sector
        self.ask: Callable[[str, str], None] | None = None  # (what, file) before each operation; may raise
        self._nodes = itertools.count()
        for name, data in self.image.items():
            self.names[name] = node = next(self._nodes)
            self.files[node] = bytearray(data)
        _disks[self.name] = self

    @property
    def place(self) -> str:
        """Where the store is."""
        return f"{self.name}/agent.db"

    def remove(self) -> None:
        """Nobody uses it any more."""
        _disks.pop(self.name, None)

    def open(self, name: str, flags: int) -> int:
        """The node of a name, made if need be."""
        if name not in self.names:
            if not flags & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"there is no {name}")
            self.names[name] = node = next(self._nodes)
            self.files[node] = bytearray()
            self.log.append((CREATE, name, node))
        return self.names[name]

    def after_cut(self, dice: random.Random, at: int | None = None) -> Image:
        """What it holds after a power cut at that operation of the log; None: now."""
        platter = Platter(self.image)
        for op in self.log[:at]:
            platter.step(op)
        return platter.cut(dice)


_numbers = itertools.count()
_disks: dict[str, Disk] = {}


class File:
    """An open file: what SQLite calls of its VFS."""

    def __init__(self, disk: Disk, name: str, flags: int) -> None:
        self.disk, self.name = disk, name
        self.node = disk.open(name, flags)
        self.data = disk.files[self.node]
        self.syncs_folder = bool(flags & NEW_JOURNAL and flags & apsw.SQLITE_OPEN_CREATE)

    def xRead(self, amount: int, offset: int) -> bytes:
        if self.disk.ask is not None:
            self.disk.ask("read", self.name)
        return bytes(self.data[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.ask is not None:
            self.disk.ask(WRITE, self.name)
        put(self.data, offset, data)
        self.disk.log.append((WRITE, self.node, offset, data))

    def xTruncate(self, size: int) -> None:
        if self.disk.ask is not None:
            self.disk.ask(TRUNCATE, self.name)
        del self.data[size:]
        self.disk.log.append((TRUNCATE, self.node, size))

    def xSync(self, flags: int) -> None:
        if self.disk.ask is not None:
            try:
                self.disk.ask(SYNC, self.name)
            except apsw.Error:
                self.disk.log.append((FAILED_SYNC, self.node))
                raise
        if not self.disk.lies:
            self.disk.log.append((SYNC, self.node))
            if self.syncs_folder:
                self.disk.log.append((FOLDER,))
        self.syncs_folder = False

    def xFileSize(self) -> int:
        return len(self.data)

    def xClose(self) -> None:
        pass

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return self.disk.sector

    def xDeviceCharacteristics(self) -> int:
        """As SQLite's own on Linux: a write leaves the bytes beside it alone."""
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class _VFS(apsw.VFS):
    """All disks of this process, by the first part of a name."""

    NAME = str(Disk.vfs)

    def __init__(self) -> None:
        super().__init__(self.NAME, "")
        self._temporary = itertools.count()

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        plain = name if isinstance(name, str) else name.filename() if name is not None else f"/temporary{next(self._temporary)}"
        disk, _, file = plain.partition("/")
        if _disks[disk].ask is not None:
            _disks[disk].ask("open", file)
        return File(_disks[disk], file, flags[0])

    def xDelete(self, name: str, sync: bool) -> None:
        disk, file = self._found(name)
        if disk.ask is not None:
            disk.ask(DELETE, file)
        disk.names.pop(file, None)
        disk.log.append((DELETE, file))
        if sync and not disk.lies:
            disk.log.append((FOLDER,))

    def xAccess(self, name: str, flags: int) -> bool:
        disk, file = self._found(name)
        return file in disk.names

    def xFullPathname(self, name: str) -> str:
        return name

    def _found(self, name: str) -> tuple[Disk, str]:
        disk, _, file = name.partition("/")
        return _disks[disk], file


_vfs = _VFS()
VFS = _VFS.NAME


def put(data: bytearray, offset: int, new: bytes) -> None:
    """Write; a hole is filled with zeros."""
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(new)] = new


@dataclass
class Platter:
    """What is durable, and what is still on its way there. seen: how often chance took each way."""

    image: Image
    names: dict[str, int] = field(default_factory=dict)
    files: dict[int, bytearray] = field(default_factory=dict)
    waiting: dict[int, list[Op]] = field(default_factory=dict)
    limbo: dict[int, list[tuple[Op, bool]]] = field(default_factory=dict)  # since a failed sync: what, and whether it is durable
    of_folder: list[Op] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    called: dict[int, str] = field(default_factory=dict)  # each file, by its name when it was made

    def __post_init__(self) -> None:
        for node, (name, data) in enumerate(self.image.items()):
            self.names[name], self.files[node], self.called[node] = node, bytearray(data), name

    @property
    def calm(self) -> bool:
        """Nothing is on its way: a cut loses nothing."""
        return not (self.of_folder or any(self.waiting.values()) or any(self.limbo.values()))

    def step(self, op: Op) -> None:
        """One operation of the log."""
        kind = op[0]
        if kind in (WRITE, TRUNCATE):
            self.waiting.setdefault(op[1], []).append(op)
        elif kind == SYNC:
            done = self.waiting.pop(op[1], ())
            if op[1] in self.limbo:  # a later sync does not bring back what a failed one has dropped
                self.limbo[op[1]].extend((one, True) for one in done)
            else:
                for one in done:
                    self._apply(self.files.setdefault(op[1], bytearray()), one)
        elif kind == FAILED_SYNC:
            self.limbo.setdefault(op[1], []).extend((one, False) for one in self.waiting.pop(op[1], ()))
        elif kind == FOLDER:
            self._enter(self.names, self.of_folder)
            self.of_folder = []
        else:
            self.of_folder.append(op)
            if kind == CREATE:
                self.files.setdefault(op[2], bytearray())
                self.called[op[2]] = op[1]

    @staticmethod
    def _apply(data: bytearray, op: Op) -> None:
        if op[0] == TRUNCATE:
            del data[op[2] :]
        else:
            put(data, op[2], op[3])

    @staticmethod
    def _enter(names: dict[str, int], ops: list[Op]) -> None:
        for op in ops:
            if op[0] == CREATE:
                names[op[1]] = op[2]
            else:
                names.pop(op[1], None)

    # --- the cut ---

    def cut(self, dice: random.Random) -> Image:
        """The power is off; what is there when it comes back."""
        likely = dice.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))  # how much is kept
        torn = dice.choice((0.0, 0.3, 0.9))
        files = dict(self.files)
        for node in {*self.waiting, *self.limbo}:
            data = files[node] = bytearray(self.files.get(node, b""))
            durable = len(data)
            for op, sure in (*self.limbo.get(node, ()), *((op, False) for op in self.waiting.get(node, ()))):
                if sure:
                    self._apply(data, op)
                else:
                    self._leave(data, op, dice, likely, torn, durable)
        names = dict(self.names)
        self._enter(names, [op for op in self.of_folder if dice.random() < likely])
        return {name: bytes(files[node]) for name, node in names.items()}

    def _leave(self, data: bytearray, op: Op, dice: random.Random, likely: float, torn: float, durable: int) -> None:
        """What is left of one operation that was not synced."""
        if op[0] == TRUNCATE or dice.random() >= torn:
            if dice.random() < likely:
                self._count("kept")
                self._apply(data, op)
            else:
                self._count("lost")
                self._litter(data, op, dice, durable)
            return
        self._count("torn")
        _, _, offset, new = op
        at = offset
        while at < offset + len(new):
            end = min(offset + len(new), (at // SECTOR + 1) * SECTOR)
            if dice.random() < 0.5:
                put(data, at, new[at - offset : end - offset])
            at = end

    def _litter(self, data: bytearray, op: Op, dice: random.Random, durable: int) -> None:
        """A file may have grown without what was written there: it holds zeros, or what some deleted file has left."""
        if op[0] != WRITE or op[2] < durable or dice.random() > 0.3:
            return
        junk = dice.random() < 0.5
        self._count("junk" if junk else "zeros")
        put(data, op[2], dice.randbytes(len(op[3])) if junk else bytes(len(op[3])))

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
