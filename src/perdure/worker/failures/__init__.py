"""Errors of user code: what is recorded of them, and how they are raised again."""
