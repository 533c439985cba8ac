"""Line charts as SVG: a few lines, an axis each, labels. Nothing else is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
COLOURS = ("#0b6e99", "#c4561b", "#3a7d34", "#7b3fa0", "#8a6d1d", "#b02a52")
TICKS = 6


@dataclass(frozen=True)
class Axis:
    """What it shows, and between which values; log: by decades."""

    name: str
    low: float
    high: float
    log: bool

    def part(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        if self.log:
            return (math.log(max(value, self.low)) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            several = (1, 2, 5) if len(decades) < 4 else (1,)
            found = [several_of * 10.0**decade for decade in decades for several_of in several]
            return [value for value in found if self.low <= value <= self.high]
        size = 10.0 ** math.floor(math.log10((self.high - self.low) / TICKS))
        step = next(size * times for times in (1, 2, 5, 10) if (self.high - self.low) / (size * times) <= TICKS)
        return [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Chart:
    """lines: what each is called, and its points. rules: what is drawn as a dashed level."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    rules: Mapping[str, float] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False

    def svg(self) -> str:
        """The text of the file."""
        xs = [x for points in self.lines.values() for x, _ in points]
        ys = [y for points in self.lines.values() for _, y in points] + [*self.rules.values()]
        across = _axis(self.x, xs, log=self.log_x, from_zero=False)
        up = _axis(self.y, ys, log=self.log_y, from_zero=True)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="22" font-size="15">{escape(self.title)}</text>',
            *_frame(across, up), *_rules(self.rules, up), *_lines(self.lines, across, up), "</svg>", "",
        ]  # fmt: skip
        return "\n".join(parts)


def _axis(name: str, values: Sequence[float], *, log: bool, from_zero: bool) -> Axis:
    low, high = min(values), max(values)
    if not log:
        low, high = (0.0, high * 1.05) if from_zero else (low, high)
        return Axis(name, low, high if high > low else low + 1, log)
    low = max(low, high / 1e6) if low > 0 else max(high / 1e6, 1e-9)
    return Axis(name, low, high if high > low else low * 10, log)


def _x(axis: Axis, value: float) -> str:
    return f"{LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT):.1f}"


def _y(axis: Axis, value: float) -> str:
    return f"{HEIGHT - BOTTOM - axis.part(value) * (HEIGHT - TOP - BOTTOM):.1f}"


def _frame(across: Axis, up: Axis) -> list[str]:
    right, bottom, middle = WIDTH - RIGHT, HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) // 2
    found = []
    for value in up.ticks():
        y = _y(up, value)
        found.append(f'<path d="M{LEFT} {y}H{right}" stroke="#e4e4e4"/>')
        found.append(f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    for value in across.ticks():
        found.append(f'<path d="M{_x(across, value)} {bottom}v5" stroke="#333333"/>')
        found.append(f'<text x="{_x(across, value)}" y="{bottom + 18}" text-anchor="middle">{_number(value)}</text>')
    found += [
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" stroke="#333333" fill="none"/>',
        f'<text x="{(LEFT + right) // 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(across.name)}</text>',
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(up.name)}</text>',
    ]
    return found


def _rules(rules: Mapping[str, float], up: Axis) -> list[str]:
    found = []
    for name, value in rules.items():
        y = _y(up, value)
        found.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#888888" stroke-dasharray="5 4"/>')
        found.append(f'<text x="{WIDTH - RIGHT + 6}" y="{float(y) + 4:.1f}" fill="#666666">{escape(name)}</text>')
    return found


def _lines(lines: Mapping[str, Points], across: Axis, up: Axis) -> list[str]:
    found = []
    for n, (name, points) in enumerate(lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        path = " ".join(f"{_x(across, x)},{_y(up, y)}" for x, y in points)
        found.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(points) <= 12:
            found += [f'<circle cx="{_x(across, x)}" cy="{_y(up, y)}" r="3" fill="{colour}"/>' for x, y in points]
        y = HEIGHT - BOTTOM - 8 - 18 * (len(lines) - 1 - n)
        found.append(f'<rect x="{WIDTH - RIGHT + 10}" y="{y - 9}" width="14" height="4" fill="{colour}"/>')
        found.append(f'<text x="{WIDTH - RIGHT + 30}" y="{y - 3}">{escape(name)}</text>')
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
