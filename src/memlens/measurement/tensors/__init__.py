"""The tensors alive in this process, and who holds them."""
