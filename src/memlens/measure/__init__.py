"""Real runs: lines, processes, tensors."""
