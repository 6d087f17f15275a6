"""Other engines beside ours, on the same machine and in the same hour; `python -m bench.peers`."""
