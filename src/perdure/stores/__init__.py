"""Stores: the only code that speaks SQL. `port` says what a store does, the others do it."""
