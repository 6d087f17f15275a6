"""What can be asked of a SQLite file without changing it: its health, and whether everything in it is consistent."""
