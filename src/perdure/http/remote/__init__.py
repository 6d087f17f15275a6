"""A Perdure over a server: the same questions, asked by HTTP."""
