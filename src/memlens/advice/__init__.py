"""What would make it fit: a table of changes, each tried by simulating it.

`advise` (advise.py) is the door. `look` finds out what there is to change, `changes/` proposes, `bench`
simulates, `plan`, `batch` and `combine` search, `result` is what comes out.
"""
