"""`memlens run` in the user's process. Standard library only: that interpreter need not have memlens."""
