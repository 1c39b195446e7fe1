"""Losses on CUDA."""
