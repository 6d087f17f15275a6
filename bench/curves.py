"""Curves: figures over time as a picture, an SVG made of nothing but lines and words.

In:   panels, each with a few lines of (seconds, value) points.
Out:  the text of an SVG file.
"""

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH, PANEL, TOP, LEFT, RIGHT, GAP = 960, 110, 64, 72, 150, 34
MOST_POINTS = 400
COLOURS = ("#1f6f8b", "#c4572b", "#5b8c3a", "#7a4fa3")
INK, PALE = "#333333", "#dddddd"
MINUTE = 60


class Line(msgspec.Struct, frozen=True):
    """One curve."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(msgspec.Struct, frozen=True):
    """Curves that share a scale, which begins at nought."""

    title: str
    lines: Sequence[Line]


def picture(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """The panels below each other, over the same time."""
    height = TOP + len(panels) * (PANEL + GAP) + 10
    longest = max((point[0] for panel in panels for line in panel.lines for point in line.points), default=1.0) or 1.0
    look = f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="11" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" {look}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
        f'<text x="16" y="42">{escape(subtitle)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (PANEL + GAP), longest)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: float, longest: float) -> list[str]:
    highest = _round_up(max((value for line in panel.lines for _, value in line.points), default=1.0))
    right, bottom = WIDTH - RIGHT, top + PANEL
    parts = [f'<text x="{LEFT}" y="{top - 5:.0f}" font-weight="bold">{escape(panel.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * PANEL
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{PALE}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * share:g}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + share * (right - LEFT)
        parts.append(f'<text x="{x:.0f}" y="{bottom + 14:.0f}" text-anchor="middle">{_minutes(longest * share)}</text>')
    for number, line in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        drawn = " ".join(
            f"{LEFT + at / longest * (right - LEFT):.1f},{bottom - value / highest * PANEL:.1f}"
            for at, value in _thinned(line.points)
        )
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        last = f"{line.points[-1][1]:.4g}" if line.points else ""
        parts.append(
            f'<text x="{right + 10}" y="{top + 12 + 16 * number:.0f}" fill="{colour}">{escape(line.name)} {last}</text>'
        )
    return parts


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """So many points that they can be told apart; of several in one place the highest, so that no peak is lost."""
    size = max(1, math.ceil(len(points) / MOST_POINTS))
    return [max(points[first : first + size], key=lambda point: point[1]) for first in range(0, len(points), size)]


def _round_up(value: float) -> float:
    """The next number that is easy to halve."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 2, 4, 6, 8, 10) if unit * step >= value)


def _minutes(seconds: float) -> str:
    return f"{seconds / MINUTE:.3g} min"
