"""The moment when memory runs out: numbers, holders, history, and what would help."""
