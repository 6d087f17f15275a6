"""Transactional activities: user code and the event that records it, committed together."""
