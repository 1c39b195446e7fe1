"""What no CPU can know: measured where a GPU is at hand."""
