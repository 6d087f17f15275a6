"""The outbox: what sinks are told, and how they are steered."""
