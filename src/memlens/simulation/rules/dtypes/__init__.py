"""Dtypes that CUDA refuses where torch's meta kernels do not look: what fails on the card must not fit.

`judges` says how a row is written; `rows` has the arguments that must go together, `kernels` the dtypes that
a kernel is compiled for.
"""
