"""Handlers: a file for each noun, each with its rows of the table of routes."""
