"""A training script, unmodified, on a simulated GPU: the parent starts it, the child becomes it."""
