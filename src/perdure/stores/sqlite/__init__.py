"""SQLite: one file, one writer per process, every commit synced to disk."""
