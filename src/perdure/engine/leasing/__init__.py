"""A worker's lease: renewed while it lives, taken over when it is gone."""
