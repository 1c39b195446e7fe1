"""Convolutions on CUDA: layouts, copies, and the scratch memory that cuDNN chooses."""
