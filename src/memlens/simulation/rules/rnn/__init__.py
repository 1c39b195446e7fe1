"""Recurrent layers on CUDA: cuDNN, or fused cells step by step."""
