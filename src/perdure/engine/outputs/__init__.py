"""What runs show of themselves and what they publish: written by their owners, read and followed by everybody."""
