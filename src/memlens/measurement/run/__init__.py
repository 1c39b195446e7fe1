"""`memlens run` in its own process: starts a program, samples it and its children, writes the record."""
