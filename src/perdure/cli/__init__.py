"""The command line: `perdure --help`."""

import sys
from importlib import import_module

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and end the process."""
    try:
        # Loading takes a moment, in which the user may press Ctrl-C.
        import_module("perdure.cli.entry").main()
    except KeyboardInterrupt:
        sys.exit(130)
