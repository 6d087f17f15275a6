"""Idempotency keys: what is asked under one is done once, and answered alike each time."""
