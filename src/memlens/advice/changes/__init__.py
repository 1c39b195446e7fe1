"""What can be changed: each file fills the table of `memlens.advice.change` with a few proposers.

A proposer reads the facts and yields a change only where it could help: nothing is simulated in vain.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
