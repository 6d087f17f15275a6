"""Workers that work over a server: rows and leases like any other's, without a process of ours."""
