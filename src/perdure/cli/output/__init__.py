"""What a command prints: tables, progress, errors, suggestions."""
