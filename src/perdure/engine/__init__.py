"""The engine: the kernel's rules over a store. `port` is what everybody else talks to."""
