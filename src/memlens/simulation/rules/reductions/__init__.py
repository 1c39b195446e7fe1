"""Sums, norms, extrema and their kin on CUDA: how they are launched, and the scratch memory that follows."""
