"""Finds workflow code that a replay would not repeat, before it runs."""
