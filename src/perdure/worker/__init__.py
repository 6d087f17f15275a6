"""The worker: runs workflow code on deterministic event loops, and activities beside them."""
