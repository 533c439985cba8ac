"""From what the watch recorded to what the user did wrong: the fault, the file and line, why it is dangerous, what to write.

Pure: it reads the records of runs and the user's source, and changes nothing. A fault is what was seen to happen; `read`
tells what a look at the source alone suspects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from semel.testing.crashtest import reading
from semel.testing.crashtest.records import Fault, Run

OUTSIDE = "effect outside @app.effect"
CHANGES = "a key that changes between attempts"
BLIND = "a lookup that says not_found without looking"
MISSES = "a lookup that does not find what happened"
ERRS = "a lookup that takes an error for not_found"
SWALLOWS = "an except that swallows a suspension"
RETRIES = "an effect function that retries by itself"
SILENCE = "an effect that takes a lost reply for success"
DENIES = "an effect that calls a lost reply not done"
KEYLESS = "a key that is never sent"
NAMES = (OUTSIDE, CHANGES, BLIND, MISSES, ERRS, SWALLOWS, RETRIES, SILENCE, DENIES, KEYLESS)
SUSPECTED = "not seen to happen, but: "

# Models are asked in handlers, by agent frameworks: in other words each time, which the keys of effects withstand.
MODELS = (
    "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "api.mistral.ai", "api.cohere.com",
    "api.groq.com", "api.deepseek.com", "api.x.ai", "openrouter.ai", "openai.azure.com", "aiplatform.googleapis.com",
)  # fmt: skip
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DAY = 86_400.0
_TELLING = 6  # so long a text stands in another by no chance
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Watched:
    """How much there was to judge by. A finding that needs what is zero here could not be made."""

    handlers: int = 0
    second_attempts: int = 0  # runs in which a handler ran in two attempts
    calls: int = 0
    submissions: int = 0
    replies_lost: int = 0
    lookups: int = 0
    not_found: int = 0
    suspensions: int = 0  # handlers that ended by one
    broken: int = 0  # events that the watch itself could not read

    def __str__(self) -> str:
        return (
            f"watched {self.handlers} handlers ({self.second_attempts} runs with a second attempt), {self.calls} calls, "
            f"{self.submissions} submissions ({self.replies_lost} replies lost), {self.lookups} lookups, "
            f"{self.suspensions} suspensions"
        )


@dataclass
class _Seen:
    """One run, read."""

    run: Run
    records: list[Record] = field(default_factory=list)

    def of(self, what: str) -> list[Record]:
        return [record for record in self.records if record["what"] == what]

    def rows(self, kind: str) -> list[Record]:
        return [{**row, **row["body"]} for row in self.run.journal if row["kind"] == kind]


def found(runs: Sequence[Run], harmless: Collection[str] = ()) -> list[Fault]:
    """The faults that these runs show, each once, in the order of `NAMES`.

    harmless: hosts (`api.example.com`, `127.0.0.1:9000`), programs and files that a handler may reach outside effects and
    steps, besides the APIs of models.
    """
    all_seen = [_seen(run) for run in runs]
    told: dict[tuple[str, str], Fault] = {}
    for seen in all_seen:
        judged = (judge(seen) for judge in (_changes, _lookups, _swallows, _retries, _silence, _keyless))
        for fault in chain(_outside(seen, harmless), *judged):
            known = told.setdefault((fault.name, fault.where), fault)
            if len(fault.what) > len(known.what):  # it saw more of it
                told[fault.name, fault.where] = fault
    return sorted(told.values(), key=lambda fault: (NAMES.index(fault.name), _line(fault.where)))


def watched(runs: Sequence[Run]) -> Watched:
    """How much these runs gave to judge by."""
    seen = [_seen(run) for run in runs]

    def count(what: str, **equal: Any) -> int:
        return sum(all(record.get(k) == v for k, v in equal.items()) for one in seen for record in one.of(what))

    attempts = [{(r["task"], r["attempt"]) for r in one.of("handler")} for one in seen]
    second = sum(len(ran) > len({task for task, _ in ran}) for ran in attempts)
    return Watched(
        count("handler"), second, count("call"), count("effect"), count("lost"), count("lookup"),
        count("verdict", verdict="not_found"), count("ended", how="suspended"), count("broken"),
    )  # fmt: skip


def _seen(run: Run) -> _Seen:
    seen = _Seen(run)
    for log in run.logs:
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            try:
                seen.records.append(json.loads(line))
            except ValueError:
                continue  # it was killed in the middle of a line
    return seen


def _at(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}"


def _line(where: str) -> tuple[str, int]:
    file, _, line = where.rpartition(":")
    return file, int(line) if line.isdigit() else 0


# --- an effect outside @app.effect ----------------------------------------------------------------------------------------


def _outside(seen: _Seen, harmless: Collection[str]) -> Iterator[Fault]:
    records = [record for record in seen.of("outside") if not _is_harmless(record, harmless)]
    # sealed: what Python's own encryption has sent, which was told before it was encrypted
    sent = [record for record in seen.of("outside") if record["act"] in ("request", "read", "bytes", "sealed")]
    known = {place for record in sent for place in _same(record)}
    quiet = ("read", "sealed")
    told = [r for r in records if r["act"] not in quiet and not (r["act"] == "connect" and _same(r) & known)]
    for record in told:
        file, line, function = record["frames"][0]
        attempts = {other["attempt"] for other in told if _innermost(other) == (file, line)}
        again = f" It was done in attempts {_and(sorted(attempts))}." if len(attempts) > 1 else ""
        yield Fault(
            OUTSIDE,
            _at(file, line),
            f"{function} {_did(record)}, outside any effect or step.{again} Nothing on record says whether it was done, so a "
            f"second attempt does it again.",
            _mend_outside(record, function),
        )


def _same(record: Record) -> set[Any]:
    """What tells that a connection is the one over which something was sent: itself, its line, the name of its host."""
    host = _host(record)
    named = {host} if re.search("[a-z]", host) else set()
    return {(record["pid"], record.get("pipe")), _innermost(record), *named}


def _innermost(record: Record) -> tuple[str, int]:
    return record["frames"][0][0], record["frames"][0][1]


def _host(record: Record) -> str:
    """Without its port."""
    host: str = record["to"]
    return host.rpartition(":")[0] or host


def _did(record: Record) -> str:
    act, to = record["act"], record["to"]
    return {
        "request": f"sent {record.get('request', '')} to {to}",
        "bytes": f"opened a connection to {to}, and sent something",
        "connect": f"opened a connection to {to}",
        "process": f"started the process {to!r}",
        "write": f"changed the file {to}",
        "sql": f"changed a SQLite database ({to})",
    }[act]  # fmt: skip


def _mend_outside(record: Record, function: str) -> str:
    or_else = {
        "request": "; if it asks a model: @app.step()", "write": "; scratch files are tempfile's", "sql": "",
    }.get(record["act"], "; if it only reads: @app.step()")  # fmt: skip
    return (
        f"move this line into an effect, and call that from {function}: @app.effect(intent=('...',), recovery=semel.Ask()) above "
        f"def NAME(submission: semel.Submission, ...){or_else}; if a second time does no harm: --harmless {_reached(record)}"
    )


def _reached(record: Record) -> str:
    """The host, the program or the file."""
    if record["act"] in ("process", "write", "sql"):
        return str(record.get("file") or record["to"])
    return _host(record)


def _is_harmless(record: Record, harmless: Collection[str]) -> bool:
    to, host = record["to"], _host(record)
    if record["act"] in ("process", "write", "sql"):
        name = _reached(record)
        names = (name, Path(name).name if record["act"] == "process" else str(Path(name).absolute()))
        return any(each in names or any(one.startswith(f"{each.rstrip('/')}/") for one in names) for each in harmless)
    return to in harmless or host in harmless or any(host == name or host.endswith(f".{name}") for name in MODELS)


# --- a key that changes ---------------------------------------------------------------------------------------------------


def _changes(seen: _Seen) -> Iterator[Fault]:
    calls: dict[tuple[str, int], list[Record]] = {}
    for call in seen.of("call"):
        calls.setdefault((call["task"], call["attempt"]), []).append(call)
    whole = {(record["task"], record["attempt"]) for record in seen.of("ended") if record["how"] == "returned"}
    for (task, first), before in calls.items():
        for (other, second), after in calls.items():
            if other == task and first < second and (task, second) in whole:
                yield from _changed(before, after, [row["result"] for row in seen.rows("stepped")])


def _changed(before: list[Record], after: list[Record], stepped: list[Any]) -> Iterator[Fault]:
    """An attempt called it under a key that a later one, which ran to its end, did not call it under, but under others."""
    for effect in dict.fromkeys(call["effect"] for call in before):
        firsts, seconds = (list({c["key"]: c for c in calls if c["effect"] == effect}.values()) for calls in (before, after))
        kept = {call["key"] for call in firsts} & {call["key"] for call in seconds}
        gone = [call for call in firsts if call["key"] not in kept]
        new = [call for call in seconds if call["key"] not in kept]
        for one, other in zip(gone, new, strict=False):
            yield _change(one, other, stepped)


def _change(one: Record, other: Record, stepped: list[Any]) -> Fault:
    name, was, now = _difference(one, other)
    frames = other["frames"] or one["frames"]
    file, line = (frames[0][0], frames[0][1]) if frames else ("", 0)
    kind, at_line, words = reading.source_of(file, line) if file else ("", 0, "")
    kind = kind or _kind(was, now, one, other)
    looks = {
        "uuid": "a uuid", "clock": "the time", "random": "a random number", "attempt": "the attempt's number",
    }.get(kind, "words that are written anew each time, by a model perhaps")  # fmt: skip
    made = f" ({words} on line {at_line})" if words else ""
    if kind == "attempt":
        mend = f"leave the attempt out of {name}: the key must be the same in every attempt; derive it from the task's arguments"
    elif any(_made_of(value, result) for value in (was, now) for result in stepped):
        mend = (
            f"derive {name} from the task's arguments: it comes from a step, and a step's result can be lost when the store is "
            f"restored, so that the next attempt makes another"
        )
    else:
        step = {"uuid": "str(uuid.uuid4())", "clock": "datetime.now(UTC).isoformat()"}.get(kind, "...")
        mend = (
            f"make {name} in a step, whose result is recorded: @app.step() above def make_{name.rpartition('.')[2]}() -> str: "
            f"return {step}; or derive it from the task's arguments"
        )
    effect = one["effect"]
    return Fault(
        CHANGES,
        _at(file, line),
        f"{effect} was called with {name}={_short(was)} in attempt {one['attempt']} and with {name}={_short(now)} in attempt "
        f"{other['attempt']}: it looks like {looks}{made}. Another intent is another key, so nobody can tell that it is the same "
        f"{effect}, and it happens once in each attempt.",
        mend,
    )


def _made_of(value: Any, result: Any) -> bool:
    """Whether a value of an intent is a step's result, or a text that holds it, or is one of its values."""
    if isinstance(result, dict | list):
        return value == result or any(_made_of(value, one) for one in (result.values() if isinstance(result, dict) else result))
    return bool(value == result) or (len(str(result)) >= _TELLING and str(result) in str(value))


def _difference(one: Record, other: Record) -> tuple[str, Any, Any]:
    """The first field of the intent that differs, and its two values."""
    if one["occurrence"] != other["occurrence"]:
        return "occurrence", one["occurrence"], other["occurrence"]
    name, was, now = "the intent", one["intent"], other["intent"]
    while isinstance(was, dict) and isinstance(now, dict):
        differs = next((key for key in {**was, **now} if was.get(key) != now.get(key)), None)
        if differs is None:
            break
        name = differs if name == "the intent" else f"{name}.{differs}"
        was, now = was.get(differs), now.get(differs)
    return name, was, now


def _kind(was: Any, now: Any, one: Record, other: Record) -> str:
    """What two values of one field look like."""
    texts = str(was), str(now)
    numbers = [re.findall(r"\d+", text) for text in texts]
    if all(_UUID.search(text) for text in texts):
        return "uuid"
    if all(_is_time(value, record["at"]) for value, record in ((was, one), (now, other))):
        return "clock"
    same = re.sub(r"\d+", "#", texts[0]) == re.sub(r"\d+", "#", texts[1])
    if same and [
        [a for a, b in zip(*numbers, strict=False) if a != b],
        [b for a, b in zip(*numbers, strict=False) if a != b],
    ] == [
        [str(one["attempt"])],
        [str(other["attempt"])],
    ]:
        return "attempt"
    drawn = all(re.fullmatch(r"[0-9a-f]{6,}|\d+|[\w-]{16,}", text, re.IGNORECASE) for text in texts)
    return "random" if drawn or (same and numbers[0]) else ""


def _is_time(value: Any, at: float) -> bool:
    """Whether it is a time within a day of then: a number of seconds, milliseconds or more, or text that begins with a date."""
    if isinstance(value, int) and not isinstance(value, bool):
        return any(abs(value / unit - at) < _DAY for unit in (1, 1e3, 1e6, 1e9))
    stamp = re.search(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?", str(value))
    if stamp is not None:
        try:
            return abs(datetime.fromisoformat(stamp[0]).timestamp() - at) < 2 * _DAY
        except ValueError:
            return False
    digits = re.search(r"\d{10,19}", str(value))
    return digits is not None and _is_time(int(digits[0]), at)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- lookups --------------------------------------------------------------------------------------------------------------


def _lookups(seen: _Seen) -> Iterator[Fault]:
    happened = _happened(seen)
    believed = [row for row in seen.rows("found") if row["verdict"] == "not_found" and row["how"].startswith("lookup:")]
    for verdict in seen.of("verdict"):
        if verdict["verdict"] != "not_found" or "file" not in verdict:
            continue
        file, line, name, key = verdict["file"], verdict["line"], verdict["function"], verdict["key"]
        at = reading.not_found_line(file, line)
        where = _at(file, at or line)
        if verdict.get("lost") and not verdict["after_reads"]:
            yield _takes_error(seen, verdict, where)
            continue
        wrong = key in happened and any(row["key"] == key and row["at"] / 1000 >= happened[key] for row in believed)
        if not verdict["acts"] and (wrong or reading.asks_nobody(file, line)):
            proof = "; it had happened, and was sent again" if wrong else ""
            yield Fault(
                BLIND,
                where,
                f"{name} said NotFound, and was not seen to open or ask anything{proof}. NotFound is taken for proof that "
                f"nothing happened: what it is said of is done again.",
                f"ask the provider by submission.key in {name}, and return semel.Confirmed(result) if it is there; what "
                f"cannot be asked has recovery=semel.Ask()",
            )
        elif wrong:
            yield Fault(
                MISSES,
                where,
                f"{name} looked and said NotFound after settle was over, of what had happened, so it was sent again. It looks in "
                f"the wrong place or for another mark, or the provider shows it later than settle says.",
                f"look for exactly what the effect sends (submission.key), and give Lookup({name}, settle=...) the provider's "
                f"longest delay",
            )


def _takes_error(seen: _Seen, verdict: Record, where: str) -> Fault:
    """A lookup whose question was not answered, and which answered."""
    nothing: Record = {"request": "its request", "frames": []}
    lost = next((record for record in seen.of("lookup_lost") if record["key"] == verdict["key"]), nothing)
    file, line = reading.catcher(lost["frames"])
    name = verdict["function"]
    return Fault(
        ERRS,
        _at(file, line) if file else where,
        f"the reply to {lost['request']} was lost, and {name} said NotFound. It could not ask, so it does not know; NotFound is "
        f"taken for proof that nothing happened, and what it is said of is done again.",
        "let the error be raised, or return semel.Unavailable(str(error)): then it is asked again",
    )


def _happened(seen: _Seen) -> dict[str, float]:
    """By key: since when an effect is known to have happened (seconds): its function had returned, or the reply had arrived."""
    known: dict[str, float] = {}
    for record in seen.records:
        if record["what"] == "lost" or (record["what"] == "effect_ended" and record["how"] in ("returned", "already_done")):
            known.setdefault(record["key"], record["at"])
    return known


# --- suspensions ----------------------------------------------------------------------------------------------------------


def _swallows(seen: _Seen) -> Iterator[Fault]:
    for record in seen.of("swallowed"):
        file, line, words = reading.swallower(record["frames"])
        if file:
            where = _at(file, line)
        else:
            handler = next(
                (h for h in seen.of("handler") if (h["task"], h["attempt"]) == (record["task"], record["attempt"])), {}
            )
            file, line = (record["frames"][0][:2]) if record["frames"] else (handler.get("file", ""), handler.get("line", 0))
            where, words = _at(file, line), "something around this line"
        then = f"went on ({_at(*record['then'][0][:2])})" if record["then"] else "returned as if it were done"
        yield Fault(
            SWALLOWS,
            where,
            f"the attempt was suspended (semel.Suspended), {words} stopped that, and {record['name']} {then}. The machine "
            f"refuses what it starts now, but it works on, and decides, with results that it never got.",
            _mend_swallow(words),
        )


def _mend_swallow(words: str) -> str:
    if words.startswith("gather"):
        return "write asyncio.gather(...) without return_exceptions, or raise what it returned that is no Exception"
    if words.startswith("suppress"):
        return "write contextlib.suppress(Exception)"
    return "write except Exception: (semel.Suspended is none, and passes); to clean up, use finally:"


# --- effects that deal with a lost reply ----------------------------------------------------------------------------------


def _ends(seen: _Seen) -> Iterator[tuple[Record, Record, Record]]:
    """What was lost, how the function ended, and how it began, of each submission whose reply was lost."""
    for lost in seen.of("lost"):
        same = [r for r in seen.records if (r.get("key"), r.get("n"), r.get("task")) == (lost["key"], lost["n"], lost["task"])]
        begun = next((r for r in same if r["what"] == "effect"), None)
        ended = next((r for r in same if r["what"] == "effect_ended"), None)
        if begun is not None and ended is not None and "file" in begun:
            yield lost, ended, begun


def _retries(seen: _Seen) -> Iterator[Fault]:
    mend = (
        "send once, and let what goes wrong be raised: semel sends again as the recovery says; set the client's retries to 0, "
        "and take out the loop"
    )
    ends = {(e["key"], e["n"], e["task"]): e for e in seen.of("effect_ended")}
    told = {(again["key"], again["n"], again["task"]) for again in seen.of("again") if again["request"]}
    for again in seen.of("again"):
        ended = ends.get((again["key"], again["n"], again["task"]), {})
        if not again["request"] and (ended.get("after_reads") or (again["key"], again["n"], again["task"]) in told):
            continue  # it has connected to read what became of it, or to send what is told
        lost = next((r for r in seen.of("lost") if (r["key"], r["n"]) == (again["key"], again["n"])), {"request": "its request"})
        same = (again["key"], again["n"], again["task"])
        begun = next((r for r in seen.of("effect") if (r["key"], r["n"], r["task"]) == same), {})
        file, line = reading.repeater(again["frames"]) or (begun.get("file", ""), begun.get("line", 0))
        sent = f"sent {again['request']}" if again["request"] else f"connected to {again['to']} again"
        yield Fault(
            RETRIES,
            _at(file, line),
            f"the reply to {lost['request']} was lost when the provider had acted, and {again['name']} {sent} in the same "
            f"submission. A retry that semel does not know of can do it twice.",
            mend,
        )
    yield from _twice_at_once(seen, mend)


def _twice_at_once(seen: _Seen, mend: str) -> Iterator[Fault]:
    """Counted more often than submitted. Only where nothing else can have done it: some probes cannot tell keys apart."""
    if any(record["act"] != "read" for record in seen.of("outside")) or seen.of("again"):
        return
    for key, count in seen.run.counted.items():
        begun = [record for record in seen.of("effect") if record["key"] == key]
        alone = len(begun) == 1 and sum(record["name"] == begun[0]["name"] for record in seen.of("effect")) == 1
        intended = sum(row["key"] == key for row in seen.rows("intended"))
        ended = next((record for record in seen.of("effect_ended") if record["key"] == key), None)
        one_request = ended is not None and ended["clear"] and ended["writes"] <= 1
        if count > 1 and alone and intended == 1 and not one_request and "file" in begun[0]:
            yield Fault(
                RETRIES,
                _at(begun[0]["file"], begun[0]["line"]),
                f"{begun[0]['name']} was submitted once, and {count} effects were counted under its key. One submission is one "
                f"request.",
                mend,
            )


def _silence(seen: _Seen) -> Iterator[Fault]:
    for lost, ended, begun in _ends(seen):
        if ended["after"] or ended["after_reads"]:
            continue
        file, line = reading.catcher(lost["frames"])
        if ended["how"] == "returned":
            yield Fault(
                SILENCE,
                _at(file or begun["file"], line or begun["line"]),
                f"the reply to {lost['request']} was lost, and {ended['name']} returned as if it had been answered. It is "
                f"recorded as done, whether or not it was.",
                "let the error be raised: then it is unknown, and the recovery finds out",
            )
        elif ended["how"] == "not_done":
            word = reading.keyword_line(begun["file"], begun["line"], "not_done")
            if not file:
                file, line = begun["file"], word or begun["line"]
            yield Fault(
                DENIES,
                _at(file, line),
                f"the reply to {lost['request']} was lost when the provider had acted, and {ended['name']} said that nothing had "
                f"happened ({ended['error']}). So it is done again.",
                "not_done=(ConnectionRefusedError,) and NotDone are for proof, from before the first byte; let all else be "
                "raised",
            )


def _keyless(seen: _Seen) -> Iterator[Fault]:
    rungs = {(record["key"], record["n"], record["task"]): record for record in seen.of("effect")}
    for ended in seen.of("effect_ended"):
        begun = rungs.get((ended["key"], ended["n"], ended["task"]))
        if begun is None or "file" not in begun or begun["rungs"][:1] != ["resend"] or ended["key_sent"] or not ended["clear"]:
            continue
        if ended["how"] == "returned" and ended["writes"] and reading.reads_no_key(begun["file"], begun["line"]):
            yield Fault(
                KEYLESS,
                _at(begun["file"], begun["line"]),
                f"{begun['name']} is declared Resend, and its request does not bear the key: the provider cannot know that a "
                f"second one is the same, so what is unknown is done again.",
                'send it: headers={"Idempotency-Key": submission.key}',
            )


def _and(numbers: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])] if len(numbers) > 1 else [str(numbers[0])])


# --- the source alone -----------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Fault]:
    """What a look at one file suspects, in order of its lines. Nothing of it was seen to happen."""
    source = reading.Source(str(path))
    told: list[Fault] = []

    def suspect(name: str, line: int, what: str, mend: str) -> None:
        told.append(Fault(SUSPECTED + name, _at(str(path), line), what, mend))

    for kind in ("task", "effect"):
        for function, _ in source.declared(kind):
            for _, handler in reading.swallowing(function):
                what = "a suspension would end here" if kind == "task" else "its error would be hidden from semel"
                suspect(
                    SWALLOWS, handler.lineno, f"{function.name} catches everything and goes on: {what}", _mend_swallow("except")
                )
    for name, line, intent, words in reading.intents_that_change(source):
        suspect(
            CHANGES, line, f"{name} is called with {intent}={words}, which is another in each attempt", f"make {intent} in a step"
        )
    for function in reading.lookups(source):
        if reading.asks_nobody(str(path), function.lineno):
            suspect(BLIND, function.lineno, f"{function.name} asks nobody", "ask the provider by submission.key")
        for handler in reading.takes_errors_for_nothing(function):
            what = f"{function.name} says NotFound when it could not ask"
            suspect(ERRS, handler.lineno, what, "let the error be raised: then it is asked again")
    return sorted(told, key=lambda fault: _line(fault.where))
