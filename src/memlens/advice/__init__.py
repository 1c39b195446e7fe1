"""What would make it fit: a table of changes, each tried by simulating it.

`advise` (advise.py) and `scripts` are the doors. The observers find out what there is to change, `changes/`
proposes, the evaluators simulate, `checkpointing_plan`, `batch` and `combine` search. `result` is the answer.
"""
