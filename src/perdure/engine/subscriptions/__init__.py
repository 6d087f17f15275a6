"""Subscriptions: who is told of runs as they change."""
