"""What a workflow author imports, against a small Runtime protocol that the worker implements."""
