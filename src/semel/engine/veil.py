"""What one attempt knows of redacted values, in memory alone, and how they are kept out of all that it records.

Every command of the attempt passes here before the machine sees it. A value that this process has seen is sought as it is
written; one that only an earlier process saw is known by its keyed digest, and sought word by word.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote, quote_plus

from immutables import Map

from semel.engine.data import NotRecordable, Result
from semel.engine.keyring import Ring
from semel.machine import redaction as r
from semel.machine.commands import MarkUnfenced
from semel.machine.events import Unfenced
from semel.model import Json

ANYWHERE = 8  # characters from which a value is sought inside words too: shorter ones are found in other people's numbers
MOST = 100_000  # objects within one value: whoever passes a live one by mistake is not waited for
LENGTH = 300  # characters of an error that are kept
# Of commands, of events and of what is folded from them, the fields in which nothing of a caller's can stand: ids, keys (but of
# a task), digests, semel's own words, names that code declares, and who signed. All others are looked through.
OWN = frozenset({
    "askers", "at_most", "budget", "by", "closed", "code", "delivery", "digest", "ending",
    "execution", "fresh", "hash", "how", "id", "incarnation", "intent", "joined", "key", "kind", "material", "max_usd", "name",
    "names", "outcome", "proof", "queue", "recovery", "reopens", "said", "sender", "session", "submitted", "task", "unfenced",
    "unknown", "usd", "used", "verdict", "waiting", "watched",
})  # fmt: skip
# Those that cannot be changed on their way to the record: what would put a value there is refused before, or not taken.
KEPT = frozenset({"ahead", "args", "batch", "event", "from_step", "identity", "observed", "occurrence"})
_GOES_BY = (MarkUnfenced, Unfenced)  # semel reads their `why` again
_NUMBERS = frozenset({"int", "bool", "int | None", "float"})
_EDGE = "[A-Za-z0-9]"
_WORDS = (re.compile(r"\w+"), re.compile(r"[^\s\"'<>,;:=()\[\]{}]+"))


def leaves(value: Any) -> Iterator[str | int | float]:
    """The texts and numbers within a value, whatever it is made of, each object once. The names in a mapping are not."""
    seen, todo = set[int](), [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str | int | float) and not isinstance(one, bool):
            yield one
        elif isinstance(one, Decimal):
            yield str(one)
        elif isinstance(one, bytes | bytearray):
            yield one.decode(errors="replace")
        elif id(one) not in seen and len(seen) < MOST:
            seen.add(id(one))
            todo.extend(_within(one))


def _within(value: Any) -> list[Any]:
    if hasattr(value, "get_secret_value"):
        return [value.get_secret_value()]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return list(vars(value).values()) if hasattr(value, "__dict__") else []


def spellings(text: str) -> set[str]:
    """A text as error messages and addresses write it, too."""
    escaped = {repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    try:
        return {text, *escaped, quote(text), quote(text, safe=""), quote_plus(text)}
    except UnicodeEncodeError:  # half a character has no bytes
        return {text, *escaped}


def said_in(record: Any) -> dict[str, Any]:
    """Of a command, an event or a state: the fields in which something of a caller's can stand."""
    fields = dataclasses.fields(record)
    own = OWN | {"why"} if isinstance(record, _GOES_BY) else OWN
    return {f.name: getattr(record, f.name) for f in fields if f.name not in own and f.type not in _NUMBERS}


def texts(record: Any, where: str) -> Iterator[tuple[str, Json]]:
    """All that can be a caller's within a state, and where it stands. Each value is text, or data as it was given."""
    if dataclasses.is_dataclass(record):
        for name, value in said_in(record).items():
            yield from texts(value, f"{where}: {name}")
    elif isinstance(record, Map):
        for name, value in record.items():
            yield f"{where}, a name", name
            placed = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], int)  # the seq, and what stands there
            yield from texts(value[1] if placed else value, f"{where} {name}")
    elif isinstance(record, tuple | frozenset):
        for value in record:
            yield from texts(value, where)
    elif record is not None:
        yield where, record


class Veil:
    """The redacted values of one attempt. Threads of late outcomes use it after the attempt."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, Json]] = []  # what the handler put on record, elsewhere too, or digested without a key
        self.active = False  # whether there is anything to keep out
        self.clean: dict[str, object] = {}  # by key: the state of an effect in which none of the values so far is
        self._lock = threading.Lock()
        self._texts: set[str] = set()
        self._numbers: set[str] = set()
        self._long: tuple[str, ...] = ()  # longest first: one may be in another
        self._short: re.Pattern[str] | None = None
        self._sought: dict[str, tuple[Ring, r.Place, Json, r.Mark]] = {}

    @property
    def _seen(self) -> bool:
        return bool(self._long) or self._short is not None

    def note(self, value: Any) -> None:
        """From now on this value, and what it is made of, is kept out."""
        texts, numbers = set[str](), set[str]()
        for leaf in leaves(value):
            (texts if isinstance(leaf, str) else numbers).add(str(leaf))
        with self._lock:
            known = len(self._numbers) + len(self._texts)
            self._numbers |= {text for text in numbers if len(text) >= r.LEAST}
            self._texts.update(spelt for text in texts | numbers if len(text.strip()) >= r.LEAST for spelt in spellings(text))
            if len(self._numbers) + len(self._texts) == known:
                return
            longest_first = sorted(self._texts, key=lambda text: (-len(text), text))
            self._long = tuple(text for text in longest_first if len(text) >= ANYWHERE)
            short = "|".join(re.escape(text) for text in longest_first if len(text) < ANYWHERE)
            self._short = re.compile(f"(?<!{_EDGE})(?:{short})(?!{_EDGE})") if short else None
            self.clean = {}
            self.active = self.active or self._seen

    def seek(self, ring: Ring, tenant: str, name: str, args: Json) -> None:
        """From now on, what an earlier process redacted of this effect is kept out too: its markers tell it."""
        for field, data in args.items() if isinstance(args, Mapping) else ():
            mark = r.mark_of(data)
            if mark is not None and ring.holds(mark.key_id):
                with self._lock:
                    self._sought = {**self._sought, mark.digest: (ring, r.Place(tenant, name, field), data, mark)}
                    self.active = True

    def text(self, said: str) -> str:
        """A text without the values."""
        for text in self._long:
            said = said.replace(text, r.SHOWN)
        if self._short is not None:
            said = self._short.sub(r.SHOWN, said)
        if self._sought and said:
            if self._is_sought(said):
                return r.SHOWN
            for words in _WORDS:
                said = words.sub(lambda word: r.SHOWN if self._is_sought(word[0]) else word[0], said)
        return said

    def error(self, error: BaseException) -> str:
        """An error as a record: its type and the first of its words; tracebacks and redacted values stay out."""
        return self.first(f"{type(error).__name__}: {error}")

    def first(self, said: str, length: int = LENGTH) -> str:
        """The first characters of a text without the values: it is cut last, as half a value must not stay either."""
        return self.text(said)[:length]

    def data(self, data: Json) -> Json:
        """Data without the values; the same object if they are not in it."""
        if isinstance(data, str):
            clean = self.text(data)
            return data if clean == data else clean
        if isinstance(data, list | tuple):
            inner = [self.data(one) for one in data]
            return data if all(a is b for a, b in zip(inner, data, strict=True)) else inner
        if isinstance(data, Mapping):
            pairs = [(self.data(name), self.data(one)) for name, one in data.items()]
            same = all(a is c and b is d for (a, b), (c, d) in zip(pairs, data.items(), strict=True))
            return data if same else dict(pairs)
        return r.SHOWN if self._is_number(data) else data

    def _is_number(self, data: Json) -> bool:
        """A number that is a redacted one, or spells a long redacted text. A short text of digits is no other number."""
        if isinstance(data, bool) or not isinstance(data, int | float) or not self.active:
            return False
        written = str(data)
        return written in self._numbers or self._is_sought(data) or any(text in written for text in self._long)

    def _is_sought(self, value: Json) -> bool:
        """Whether it is a value that is known by its digest alone; digits may have been a number."""
        if len(str(value)) < r.LEAST:
            return False
        read: list[Json] = [value, str(value)]
        if isinstance(value, str) and re.fullmatch(r"-?[1-9][0-9]{0,15}", value) and abs(int(value)) < 2**53:
            read.append(int(value))
        return any(
            ring.has_part(place, mark, str(value)) or any(ring.matches(place, data, one) for one in read)
            for ring, place, data, mark in self._sought.values()
        )

    def shows(self, data: Json) -> bool:
        """Whether a value that this process has seen is in `data` in clear."""
        return self._seen and self.data(data) is not data

    def over(self, command: Any) -> Any:
        """A command, as it may be recorded."""
        if not self.active:
            return command
        said = {name: value for name, value in said_in(command).items() if name not in KEPT}
        clean = {name: self.data(value) for name, value in said.items()}
        changed = {name: value for name, value in clean.items() if value is not said[name]}
        return dataclasses.replace(command, **changed) if changed else command

    def result(self, result: Result, data: Json) -> Json:
        """A result as it may be recorded. Raises `NotRecordable` if it is no such result any more without the values."""
        clean = self.data(data) if self.active else data
        if clean is not data:
            try:
                result.decode(clean)
            except NotRecordable:
                raise NotRecordable("a redacted value is in it, and without that it does not fit its annotation") from None
        return clean

    def encoder(self, result: Result) -> Callable[[Any], Json]:
        """How to record a result without the values."""
        return lambda value: self.result(result, result.encode(value))
