"""Programs for those who work on Perdure."""
