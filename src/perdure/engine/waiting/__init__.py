"""Callers that wait: for the end of a run, or for its answer to what they asked."""
