"""A command line as people type it becomes a `Script`: `python -m`, launchers, installed commands."""
