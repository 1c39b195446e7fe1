"""How a script becomes `__main__`: as a file, as a module, or as a command of the environment."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, ModuleType

from memlens.measurement.child import bootstrap
from memlens.model.user_code import Whose, whose
from memlens.scenarios.script.constants import compiled
from memlens.scenarios.script.job import Job


def read_main(job: Job) -> tuple[ModuleType, CodeType]:
    """`__main__`, empty, and the code that is to run in it. Sets `sys.argv` and `sys.path` as Python does."""
    if job.command:
        return _command(job)
    if job.module:
        module, code = bootstrap.read_module(["-m", job.module, *job.arguments])
    else:
        module, code = bootstrap.read_script([job.path, *job.arguments])
    if job.constants:
        code = compiled(Path(job.path).read_bytes(), code.co_filename, job.constants)
    return module, code


def _command(job: Job) -> tuple[ModuleType, CodeType]:
    """What the file does that pip puts into `bin` for a console script."""
    sys.argv[:] = [job.command, *job.arguments]
    text = (
        "import sys\nfrom importlib.metadata import EntryPoint\n"
        f"sys.exit(EntryPoint({job.command!r}, {job.module!r}, 'console_scripts').load()())"
    )
    return bootstrap.new_main(), compile(text, "<string>", "exec", dont_inherit=True)


def own_folder(job: Job, script: Path) -> Path:
    """Where the script's own modules are found; for an installed package, where nothing is its own."""
    if not job.module:
        return script.parent
    if whose(str(script)) is not Whose.USER:
        return script.with_suffix("")  # no folder: it is a library like the others
    module = job.module.partition(":")[0].split()[0]
    return script.parents[module.count(".") + (script.stem in ("__init__", "__main__"))]
