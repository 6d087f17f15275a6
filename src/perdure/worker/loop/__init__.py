"""The deterministic event loop that workflow code runs on, and what keeps that code repeatable."""
