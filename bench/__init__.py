"""How fast: our own runs beside the floor of this machine; `python -m bench`."""
