"""As if: a model, its inputs, an optimizer, a precision and a loop, made into a simulated run.

`memlens.predict` (predict.py) is the door. The other files each know one part of the scenario.
"""
