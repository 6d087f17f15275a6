"""What people and programs are shown of runs: for the command line, HTTP and the dashboard alike."""
