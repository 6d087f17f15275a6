"""A worker over a server: what the worker of this process asks of its engine, asked by HTTP."""
