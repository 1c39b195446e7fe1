"""A notebook run without Jupyter: cells in order in one namespace, by IPython's own code."""
