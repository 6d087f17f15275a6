"""Flatness: whether a figure grows over time, or only goes up and down."""

import statistics
from collections.abc import Sequence
from itertools import combinations

# Of more points than this not every two are compared.
MOST_PAIRED = 120


def growth(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How much the middle slope between any two points adds over all of them; and how far they stray from it.

    One jump, or one sample in the middle of something, does not move it as it would move a mean.
    """
    thin = points[:: max(1, len(points) // MOST_PAIRED)]
    slope = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(thin, 2))
    strayed = sorted(value - slope * at for at, value in points)
    noise = strayed[int(len(strayed) * 0.75)] - strayed[int(len(strayed) * 0.25)]
    return slope * (points[-1][0] - points[0][0]), noise
