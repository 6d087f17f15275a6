"""The rules: pure functions on frozen values.

In:   a run's state, a command, the time.
Out:  events, or a refusal.
No I/O, clock, asyncio, logging or randomness in here; a test sees to that.
"""
