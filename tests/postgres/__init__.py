"""Postgres for tests: a real server from PyPI, and what only Postgres can go through."""
