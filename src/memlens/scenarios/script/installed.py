"""What is wrong with the libraries that are installed: names that they no longer have, imports that fail."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from memlens.model.user_code import Whose, whose
from memlens.scenarios.user_frames import last_line, place

# names of older versions, and what has their place; a module has all that is below it
REPLACED = {
    "torch._six": "str, int, math.inf and collections.abc",
    "torch.utils.ffi": "torch.utils.cpp_extension",
    "torch.utils.data.dataloader.DataLoaderIter": "iter(loader)",
    "torch.utils.data.dataloader._DataLoaderIter": "iter(loader)",
    "torch.optim.lr_scheduler._LRScheduler": "torch.optim.lr_scheduler.LRScheduler",
    "torch.nn.modules.linear._LinearWithBias": "torch.nn.modules.linear.NonDynamicallyQuantizableLinear",
    "torch.rfft": "torch.fft.rfft",
    "torch.irfft": "torch.fft.irfft",
    "torchvision.models.utils": "torch.hub",
    "torchvision.transforms.Scale": "torchvision.transforms.Resize",
    "torchvision.transforms.RandomSizedCrop": "torchvision.transforms.RandomResizedCrop",
    "torchtext.legacy": "torch.utils.data",
    "numpy.float": "float",
    "numpy.int": "int",
    "numpy.bool": "bool",
    "numpy.object": "object",
    "numpy.str": "str",
    "numpy.complex": "complex",
    "numpy.long": "int",
    "numpy.unicode": "str",
    "numpy.float_": "numpy.float64",
    "numpy.complex_": "numpy.complex128",
    "numpy.Inf": "numpy.inf",
    "numpy.Infinity": "numpy.inf",
    "numpy.NaN": "numpy.nan",
    "numpy.product": "numpy.prod",
    "numpy.cumproduct": "numpy.cumprod",
    "numpy.in1d": "numpy.isin",
    "numpy.trapz": "numpy.trapezoid",
    "numpy.row_stack": "numpy.vstack",
    "numpy.msort": "numpy.sort(axis=0)",
    "scipy.misc": "imageio, or PIL.Image",
    "scipy.integrate.trapz": "scipy.integrate.trapezoid",
    "sklearn.externals": "joblib",
    "sklearn.cross_validation": "sklearn.model_selection",
    "PIL.Image.ANTIALIAS": "PIL.Image.LANCZOS",
    "collections.Iterable": "collections.abc.Iterable",
    "collections.Mapping": "collections.abc.Mapping",
    "collections.MutableMapping": "collections.abc.MutableMapping",
    "collections.Sequence": "collections.abc.Sequence",
    "collections.Callable": "collections.abc.Callable",
    "collections.Hashable": "collections.abc.Hashable",
    "collections.Container": "collections.abc.Container",
    "fractions.gcd": "math.gcd",
    "inspect.getargspec": "inspect.getfullargspec",
    "time.clock": "time.perf_counter",
    "distutils": "setuptools, or shutil",
    "imp": "importlib",
    "cPickle": "pickle",
    "urllib2": "urllib.request",
    "Queue": "queue",
    "transformers.AdamW": "torch.optim.AdamW",
    "transformers.optimization.AdamW": "torch.optim.AdamW",
    "transformers.file_utils": "transformers.utils",
    "transformers.modeling_bert": "transformers.models.bert.modeling_bert",
    "transformers.tokenization_bert": "transformers.models.bert.tokenization_bert",
    "transformers.deepspeed": "transformers.integrations.deepspeed",
    "transformers.AutoModelWithLMHead": "transformers.AutoModelForCausalLM",
    "datasets.load_metric": "evaluate.load",
    "pytorch_lightning.metrics": "torchmetrics",
    "pytorch_lightning.metrics.functional": "torchmetrics.functional",
    "pytorch_lightning.plugins.DDPPlugin": "pytorch_lightning.strategies.DDPStrategy",
    "apex.amp": "torch.autocast",
    "apex.parallel.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
}
# libraries that are made for one version of torch each
_BUILT_FOR_TORCH = {"torchvision", "torchaudio", "torchtext", "xformers", "flash_attn", "torch_scatter"}
# what pip calls them, and what pip does not have
_PIP = {
    "cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image",
    "yaml": "pyyaml", "google": "protobuf", "flash_attn": "flash-attn", "bs4": "beautifulsoup4",
    "pytorch_lightning": "pytorch-lightning", "dotenv": "python-dotenv", "hydra": "hydra-core",
}  # fmt: skip
_NOT_FROM_PIP = {"apex": "torch.autocast and torch.optim have what apex had: the script has to use them"}
_NO_ATTRIBUTE = re.compile(r"module '?([\w.]+)'? has no attribute '?(\w+)'?")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NUMPY_2 = re.compile(r"`np\.(\w+)` was (?:removed|a deprecated alias)")


class Broken(NamedTuple):
    """What is wrong, and what to do."""

    message: str
    hint: str


def broken(error: BaseException, script: str, earlier: Mapping[str, BaseException]) -> Broken | None:
    """The line about an error that lies in what is installed, not in the script; None if it does not.

    `earlier` are the first errors of libraries that failed to import before: a second try fails otherwise.
    """
    where = place(error)
    root = _root(error)
    package = _importing(root) or _importing(error)
    if package in earlier:
        root = _root(earlier[package])
        package = _importing(root) or package
    name = old_name(root)
    if name is not None:
        return _old(name, package or script, where)
    if isinstance(root, ModuleNotFoundError) and root.name and not _is_about_the_scripts_own(root):
        name = root.name.partition(".")[0]
        message = f"{script} needs {root.name}, which is not installed ({where})"
        return Broken(message, _NOT_FROM_PIP.get(name) or f"pip install {_PIP.get(name, name)}")
    if not package:
        return None
    known = _version(package)
    message = f"{script} needs {package}{f' {known}' if known else ''}, which cannot be imported here: "
    return Broken(f"{message}{last_line(root)} ({where})", _what_to_install(package))


def old_name(error: BaseException) -> str | None:
    """The dotted name that a library does not have, if that is what is wrong."""
    text = str(error)
    if _is_about_the_scripts_own(error):
        return None
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name in REPLACED:
            return error.name
        top, dot, _ = error.name.partition(".")
        return error.name if dot and _is_installed(top) else None
    name = ""
    if isinstance(error, AttributeError):
        no_attribute, numpy = _NO_ATTRIBUTE.search(text), _NUMPY_2.search(text)
        name = ".".join(no_attribute.groups()) if no_attribute else f"numpy.{numpy[1]}" if numpy else ""
    elif isinstance(error, ImportError):
        no_name = _NO_NAME.search(text)
        name = f"{no_name[2]}.{no_name[1]}" if no_name else ""
    top = name.partition(".")[0]
    return name if name and (name in REPLACED or _is_installed(top)) else None


def _is_about_the_scripts_own(error: BaseException) -> bool:
    """Whether what lacks a name is a module that the user wrote."""
    top = str(getattr(error, "name", "") or "").partition(".")[0]
    holder = sys.modules.get(top) if isinstance(error, ImportError) else getattr(error, "obj", None)
    file = getattr(holder, "__file__", None)
    return file is not None and whose(file) is Whose.USER


def _old(name: str, user: str, where: str) -> Broken:
    top = name.partition(".")[0]
    known = _version(top)
    whose_version = (
        f"the installed {top} {known}" if known else "this Python" if top in sys.stdlib_module_names else top
    )
    parts = name.split(".")
    above = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    instead = next((REPLACED[dotted] for dotted in above if dotted in REPLACED), None)
    hint = f"{instead} replaced it" if instead else f"another version of {top} has it"
    return Broken(f"{user} uses {name}, which {whose_version} does not have ({where})", hint)


def _root(error: BaseException) -> BaseException:
    """What an error was caused by, in the end."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _importing(error: BaseException) -> str:
    """The library that was being imported when `error` was raised; empty if none was."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        kind = whose(frame.filename)
        if kind is Whose.USER:
            return ""
        if kind is Whose.LIBRARY and frame.name == "<module>":
            parts = Path(frame.filename).parts
            last = max(n for n, part in enumerate(parts) if part in ("site-packages", "dist-packages"))
            return parts[last + 1].removesuffix(".py")
    return ""


def _what_to_install(package: str) -> str:
    if package in _BUILT_FOR_TORCH:
        return f"pip install --upgrade {package}, the version that is made for torch {_version('torch')}"
    return f"pip install --upgrade {package}"


def _version(package: str) -> str:
    """As pip knows it; empty if it does not."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    names = metadata.packages_distributions().get(package, [])  # slow
    return metadata.version(names[0]) if names else ""


def _is_installed(package: str) -> bool:
    return package in sys.modules or find_spec(package) is not None
