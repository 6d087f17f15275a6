"""Snapshots: what a workflow shows of itself, and how large that may be."""

import msgspec

# Beyond so many bytes people are told that a run shows much, beyond so many they are warned; more is left out.
MUCH, LARGE, LARGEST = 10 * 1024, 100 * 1024, 256 * 1024
# Why a function shows nothing is told in so many letters, and in so many bytes more for all of them.
LONGEST_ERROR = 300
ROOM_FOR_ERRORS = 16 * 1024


class ShownValues(msgspec.Struct):
    """The values that a workflow exposes by name, as JSON, and why there is none where there is none."""

    values: dict[str, msgspec.Raw]
    errors: dict[str, str]
