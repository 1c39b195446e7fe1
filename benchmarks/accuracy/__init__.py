"""How close predictions come to memory that real GPUs used: `python -m benchmarks.accuracy`.

The recorded figures lie beside the checkout (`../shared/truth`, or where MEMLENS_SHARED says) and are no part
of the project. The table goes to docs/accuracy.md.
"""
