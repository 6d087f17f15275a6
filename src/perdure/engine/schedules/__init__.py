"""Schedules: rows that start runs at times."""
