"""Magics for IPython and notebooks."""
