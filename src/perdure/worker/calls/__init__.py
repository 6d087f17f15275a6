"""Durable calls: what workflow code can wait for, one file per kind."""
