"""How a process works runs: by presets, or for the length of a call where it lives for seconds."""
