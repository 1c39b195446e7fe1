"""Real runs: processes, lines, tensors, and the moment when memory runs out."""
