"""How close predictions come to memory that real GPUs used: `python -m benchmarks.accuracy TRUTH`.

TRUTH is the folder of recorded figures, which is no part of the project. A table is a module with its
programs and a row in `tables`; `run` predicts the rows, `page` and `figures` show what came out.
"""
