"""The page: prose by hand, tables and plots by the run, between `<!-- measured: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import figures
from goals import LITE, PG, Results, judged, short
from plot import Chart

NAMES = {LITE: "SQLite", PG: "PostgreSQL"}
MARKED = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
BUSY = 2.0  # the load at the start, from which on others are in the way
NOTHING = "Not measured yet: `make bench` writes it.\n"
UNITS = {  # value: what stands above its column
    "per_second": "a second", "cpu_ms": "ms CPU", "commits": "commits", "syncs": "syncs", "wal_bytes": "B of WAL",
    "statements": "statements", "trips": "round trips", "rss": "MiB",
}  # fmt: skip


def table(head: Iterable[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    """As Markdown; so many columns are words, the others are numbers."""
    names = [*head]
    lines = [names, ["---"] * words + ["--:"] * (len(names) - words), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _of(results: Results, part: str) -> dict[str, dict[str, Any]]:
    return results.get(part, {}).get("figures", {})  # type: ignore[no-any-return]


def goals(results: Results) -> str:
    """What it must show."""
    said = {True: "met", False: "**missed**", None: ""}
    quick = sorted(part for part, held in results.items() if held["run"]["quick"])
    less = f"\nOf a quick run, with less work and fewer rows than the names say: {', '.join(quick)}.\n" if quick else ""
    rows = [(what, goal, found, ratio, said[met]) for what, goal, found, ratio, met in judged(results)]
    return table(("figure", "goal", "measured", "of the goal", ""), rows, 2) + _busy(results) + less


def _busy(results: Results) -> str:
    """Said where it matters: rates and latencies of a machine that others used are worse than it can."""
    loads = [float(held["run"]["machine"]["load"].partition(" ")[0]) for held in results.values()]
    if not loads or max(loads) < BUSY:
        return ""
    return (
        f"\n**The machine was busy with other work** (load {max(loads):.0f} when a part began): rates and latencies are worse "
        f"than it can, and unsteady; CPU is a little higher. What is counted for each effect, and memory, is as it is.\n"
    )


def where(results: Results) -> str:
    """Machine, versions, and when each part was measured."""
    found = "".join(f"- {name}: {value}\n" for name, value in _machine(results).items())
    rows = []
    for part, held in results.items():
        run = held["run"]
        rows.append(
            (part, run["at"], run["commit"], "a quick one" if run["quick"] else "full", run["machine"]["load"], run["took"])
        )
    return found + "\n" + table(("part", "measured", "commit", "run", "load of the machine", "took"), rows, 6)


def _machine(results: Results) -> dict[str, str]:
    found: dict[str, str] = {}
    for held in results.values():
        found |= held["run"]["machine"]
    return {name: value for name, value in found.items() if name != "load"}


def rates(results: Results) -> str:
    """Rates of both stores, and what each effect, task or enqueue costs."""
    text = ""
    for part, name in NAMES.items():
        limits = _of(results, part).get("limits", {})
        shown = {figure: values for figure, values in _of(results, part).items() if "per_second" in values}
        if not shown:
            continue
        columns = [column for column in UNITS if any(column in values for values in shown.values())]
        rows = [[f"{limit}, the machine's own", short(rate), *[""] * (len(columns) - 1)] for limit, rate in limits.items()]
        rows += [[figure, *(short(values[c]) if c in values else "" for c in columns)] for figure, values in shown.items()]
        text += f"\n### {name}: rates\n\n" + table(("what", *(UNITS[c] for c in columns)), rows)
    return text


def others(results: Results) -> str:
    """Latency, takeover, idle, memory, steps, sessions."""
    rows = []
    for part, name in NAMES.items():
        for figure, values in _of(results, part).items():
            if figure in ("limits", "where the time goes") or figure.startswith(("effects", "empty", "enqueue")):
                continue
            shown = [f"{key.replace('_', ' ')} {short(v)}" for key, v in values.items() if isinstance(v, (int, float))]
            rows.append((figure, name, ", ".join(shown)))
    asks = _of(results, PG).get("idle worker", {}).get("asks", {})
    text = "".join(f"- {short(rate)}: `{query}`\n" for query, rate in asks.items() if rate >= 0.05)
    return table(("what", "store", "found"), rows, 3) + (
        f"\nWhat an idle worker asks a second, besides beats:\n\n{text}" if text else ""
    )


def profile(results: Results) -> str:
    """Where the time of a worker goes, with 200 tasks at a time."""
    text = ""
    for part, name in NAMES.items():
        found = _of(results, part).get("where the time goes")
        if found:
            threads = ", ".join(f"{thread} {ms:.3f}" for thread, ms in found["threads"].items() if ms >= 0.001)
            files = ", ".join(f"{file} {100 * share:.0f} %" for file, share in found["files"].items() if share >= 0.015)
            text += f"- {name}, ms of CPU an effect, by thread: {threads}. Where it goes: {files}.\n"
    return text


def growth(results: Results) -> str:
    """What a store that holds a lot costs."""
    text = ""
    for part, name in NAMES.items():
        found = _of(results, f"growth.{part}")
        first = {figure: v for figure, v in found.items() if figure.startswith("first 1,000")}
        if first:
            head = ("with", "behind them", "a second", "with 10^3 in all", "ratio")
            shown = ("per_second", "with_1000", "ratio")
            rows = [(f.partition(", ")[2], f"{v['rows']:,}", *(short(v[c]) for c in shown)) for f, v in first.items()]
            text += f"\n### {name}: a worker's first 1,000 tasks\n\n" + table(head, rows)
        cost = {figure.removeprefix("cost: "): v for figure, v in found.items() if figure.startswith("cost: ")}
        if cost:
            title = f"\n### {name}: milliseconds of each kind of step, and times that with 10^3 queued\n\n"
            costs = [(case, *(f"{short(one['ms'])} ({one['ratio']:.2f})" for one in v.values())) for case, v in cost.items()]
            text += title + table(("store holds", *next(iter(cost.values()))), costs)
        text += _start(name, found) + _fairness(name, found)
    return text


def _start(name: str, found: dict[str, dict[str, Any]]) -> str:
    start = found.get("start of a worker")
    if start is None:
        return ""
    new, known = short(start["new_code_seconds"]), short(start["known_code_seconds"])
    return (
        f"\n{name}: with {start['rows']:,} tasks queued, a worker's first handler begins {new} s after its start if its code has "
        f"not been here before, {known} s if it has.\n"
    )


def _fairness(name: str, found: dict[str, dict[str, Any]]) -> str:
    fair = found.get("one tenant with everything")
    if fair is None:
        return ""
    when = f"the last of theirs is the {fair['after']:,}th to begin"
    if fair["begun"] < fair["others"]:
        when = f"of the first {fair['after']:,} to begin, {fair['begun']} are theirs"
    return f"\n{name}: one tenant has queued {fair['rows']:,} tasks, then {fair['others']} others one each: {when}.\n"


def peers(results: Results) -> str:
    """Others on the same work."""
    text = ""
    for part, name in NAMES.items():
        found = _of(results, f"peers.{part}")
        rows = []
        for figure, values in found.items():
            work, _, who = figure.partition(": ")
            own = found[f"{work}: semel"]["per_second"]
            cells = [
                short(values[c]) if c in values else ""
                for c in ("per_second", "enqueue_per_second", "commits", "syncs", "wal_bytes")
            ]
            rows.append((work, f"{who} {values.get('version', '')}".strip(), *cells, f"{own / values['per_second']:.1f}"))
        if rows:
            head = (
                "work",
                "by",
                "a second",
                "enqueued a second",
                "commits",
                "syncs",
                "B of WAL",
                "semel is so many times as fast",
            )
            text += f"\n### {name}\n\n" + table(head, rows, 2)
    return text


# --- plots ---


def charts(results: Results) -> dict[str, Chart]:
    """By the name of their file; those of which nothing is measured are left out."""
    limits = {**_of(results, LITE).get("limits", {}), **_of(results, PG).get("limits", {})}
    at_a_time = {
        name: [
            (float(c), v["per_second"]) for c in figures.CONCURRENT if (v := _of(results, part).get(figures.effects_at_a_time(c)))
        ]
        for part, name in NAMES.items()
    }
    processes = {
        name: [
            (float(n), v["per_second"])
            for n in figures.PROCESSES
            if (v := _of(results, part).get(f"effects, {n} worker {'process' if n == 1 else 'processes'}"))
        ]
        for part, name in NAMES.items()
    }  # fmt: skip
    delays, held = {}, {}
    for part, name in NAMES.items():
        for how in ("in one process", "across processes"):
            cuts = _of(results, part).get(f"latency, {how}", {}).get("cuts_ms", [])
            delays[f"{name}, {how}"] = [(ms, float(n)) for n, ms in enumerate(cuts, 1)]
        under = _of(results, f"growth.{part}").get("a snapshot is held", {})
        held[f"{name}, held"] = _smooth(under.get("each", []))
        held[f"{name}, not held"] = _smooth(under.get("each_without", []))
    found = {
        "concurrency": Chart("Effects, one worker process", "tasks at a time", "effects/s", at_a_time, limits, log_x=True),
        "processes": Chart("Effects, several worker processes on one queue", "processes", "effects/s", processes),
        "latency": Chart("Idle system: enqueue to start of the handler", "ms", "% of the tasks", delays, log_x=True),
        "growth": Chart("A worker's first 1,000 tasks", "tasks queued", "of the rate with 10^3", _growth(results), log_x=True),
        "held": Chart("While somebody holds a snapshot, and not", "seconds", "tasks/s", held),
    }  # fmt: skip
    shown = {file: {name: points for name, points in chart.lines.items() if points} for file, chart in found.items()}
    return {file: _with(chart, shown[file]) for file, chart in found.items() if shown[file]}


def _with(chart: Chart, lines: dict[str, Any]) -> Chart:
    return Chart(chart.title, chart.x, chart.y, lines, chart.rules, chart.log_x, chart.log_y)


def _growth(results: Results) -> dict[str, list[tuple[float, float]]]:
    lines = {}
    for part, name in NAMES.items():
        for how in (", statistics absent", ", statistics stale") if part == PG else ("",):
            found = _of(results, f"growth.{part}")
            points = [(v["rows"], v["ratio"]) for n in range(4, 8) if (v := found.get(f"first 1,000 tasks, 10^{n} queued{how}"))]
            lines[name + how.replace("statistics ", "")] = [(1000.0, 1.0), *points] if points else []
    return lines


def _smooth(each: list[float], seconds: int = 5) -> list[tuple[float, float]]:
    """Means of so many seconds."""
    whole = range(0, len(each) - seconds + 1, seconds)
    return [(low + seconds / 2, sum(each[low : low + seconds]) / seconds) for low in whole]


def write(page: Path, images: Path, results: Results) -> None:
    """Write tables and plots anew; the prose stays."""
    images.mkdir(parents=True, exist_ok=True)
    drawn = charts(results)
    for file, chart in drawn.items():
        (images / f"bench-{file}.svg").write_text(chart.svg(), encoding="utf-8")
    makers = {
        "goals": goals,
        "where": where,
        "rates": rates,
        "others": others,
        "profile": profile,
        "growth": growth,
        "peers": peers,
    }

    def anew(found: re.Match[str]) -> str:
        name = found[2]
        if name.startswith("plot_"):
            chart = drawn.get(name.removeprefix("plot_"))
            text = f"![{chart.title}](images/bench-{name.removeprefix('plot_')}.svg)\n" if chart else NOTHING
        else:
            text = makers[name](results).strip("\n") + "\n" if results else NOTHING
        return f"{found[1]}{text if text.strip() else NOTHING}{found[3]}"

    page.write_text(MARKED.sub(anew, page.read_text(encoding="utf-8")), encoding="utf-8")
