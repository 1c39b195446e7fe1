"""Where memlens meets other tools: decorators, pytest."""
