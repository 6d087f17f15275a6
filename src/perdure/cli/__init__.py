"""The command line: `perdure --help`."""

from perdure.cli.entry import main

__all__ = ["main"]
