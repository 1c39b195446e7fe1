"""Attention on CUDA: which kernel runs, and what it allocates."""
