"""What workers over HTTP ask: a lease, tasks, runs, hints by a stream, and the runs they own."""
