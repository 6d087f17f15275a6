"""Perdure and Run for code that does not await: generated classes over a thread with an event loop."""
