"""Open runs against the code of this process, before it is deployed: nothing is written, claimed or run."""
