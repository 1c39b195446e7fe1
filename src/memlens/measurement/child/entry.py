"""What `memlens run` starts a Python program with: `python entry.py OPTIONS TARGET args` (see bootstrap.py).

Python compiles a script anew each time it runs it, and this one each program waits for: all else is in
bootstrap.py, whose bytecode is kept.
"""

import sys
from importlib.machinery import SourceFileLoader

path = __file__[: -len("entry.py")] + "bootstrap.py"
module = sys.modules["_memlens_bootstrap"] = type(sys)("_memlens_bootstrap")
module.__file__ = path
SourceFileLoader(module.__name__, path).exec_module(module)
module.main(__file__)
