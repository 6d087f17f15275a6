"""Streams: frames, how they are sent, and who has them open."""
