"""Postgres: many processes on many machines, every commit synced to disk."""
