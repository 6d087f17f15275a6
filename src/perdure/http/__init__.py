"""The server: everything over HTTP. Routes are rows of a table; the app that serves them is plain ASGI."""
