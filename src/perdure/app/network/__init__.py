"""A Perdure that is served over HTTP, and one that is a client of a server."""
