"""`python -m memlens` is `memlens`."""

from memlens.cli import main

main()
