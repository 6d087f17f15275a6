"""`python -m perdure.cli` is `perdure`."""

from perdure.cli.entry import main

main()
