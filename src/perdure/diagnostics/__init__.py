"""What is wrong with a machine, a database or its runs, and what to do; for the command line, HTTP and pages alike."""
