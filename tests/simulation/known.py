"""Seeds that ever failed; they run first, for ever."""

from pathlib import Path

import msgspec

SEEDS = Path(__file__).parents[1] / "seeds.yaml"


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seed that failed once: what it violated, since which commit it does not, and as what it is planted again."""

    seed: int
    violated: str
    mended: str
    planted: str


def known() -> list[Known]:
    """All of them."""
    return msgspec.yaml.decode(SEEDS.read_bytes(), type=list[Known])


def known_seeds() -> list[int]:
    return [each.seed for each in known()]
