"""The commands, one file each under its own name."""
