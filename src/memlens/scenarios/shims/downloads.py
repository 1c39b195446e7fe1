"""What a script fetches beside its data, and what it would do with it does not matter for memory.

A table says which addresses are answered, and with what; every other one stays unreachable.
"""

from __future__ import annotations

import email.message
import io
import json
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.response import addinfourl

from memlens.scenarios.shims.registry import Shims, shim

CLASSES = 1000  # of a list of names, as ImageNet has them
WIDTH, HEIGHT = 500, 375  # of a picture, as ImageNet's median


def a_font() -> bytes | None:
    """One that is installed here."""
    try:
        from matplotlib import font_manager

        with open(font_manager.findfont("DejaVu Sans"), "rb") as file:
            return file.read()
    except (ImportError, OSError):
        return None


def a_picture() -> bytes | None:
    """A grey photograph."""
    try:
        from PIL import Image
    except ImportError:
        return None
    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), (128, 128, 128)).save(file, "PNG")
    return file.getvalue()


def names() -> bytes:
    return "\n".join(f"class {number}" for number in range(CLASSES)).encode()


def named_numbers() -> bytes:
    return json.dumps({str(number): [f"n{number}", f"class {number}"] for number in range(CLASSES)}).encode()


# what an address looks like, without its query; what it is answered with; what that is called; whether only
# --synthetic makes it up, for its size may matter
ANSWERS: tuple[tuple[str, Callable[[], bytes | None], str, bool], ...] = (
    (r"\.(ttf|otf|ttc|woff2?)$", a_font, "a font of this machine", False),
    (r"^https?://api\.github\.com/", lambda: b"[]", "an empty list", False),
    (r"^https?://(test\.)?pypi\.org/.*json$", lambda: b'{"info": {"version": "0"}}', "version 0", False),
    (r"(class|label|synset|categor)[^/]*\.json$", named_numbers, f"{CLASSES} names", False),
    (r"(class|label|synset|categor)[^/]*\.(txt|csv)$|\.names$", names, f"{CLASSES} names", False),
    (r"\.(png|jpe?g|bmp|gif|webp)$", a_picture, f"a picture of {WIDTH}x{HEIGHT}", True),
)


def answer(shims: Shims, address: str) -> bytes | None:
    """What is behind `address`, and stated; None where that is not for us to say."""
    plain = urlsplit(address)._replace(query="", fragment="").geturl()
    for looks, make, what, has_size in ANSWERS:
        if re.search(looks, plain, re.IGNORECASE) and (shims.synthetic or not has_size):
            content = make()
            if content is not None:
                shims.say(f"{plain} is answered with {what}", "nothing is downloaded")
            return content
    return None


def opening(shims: Shims, urlopen: Callable[..., Any]) -> Callable[..., Any]:
    """`urlopen`."""

    def open_or_answer(url: Any, *args: Any, **options: Any) -> Any:
        address = url if isinstance(url, str) else url.full_url
        content = answer(shims, address)
        if content is None:
            return urlopen(url, *args, **options)
        headers = email.message.Message()
        headers["Content-Length"] = str(len(content))
        return addinfourl(io.BytesIO(content), headers, address, 200)

    return open_or_answer


@shim("urllib.request")
def of_python(shims: Shims, request: ModuleType) -> dict[str, Any]:
    """`urlopen`, by which `urlretrieve` works too."""
    return {"urlopen": opening(shims, request.urlopen)}


@shim("torch")
def of_torch(shims: Shims, torch: ModuleType) -> dict[str, Any]:
    """`torch.hub`: its downloads, and models of torchvision, which may be installed."""
    load = torch.hub.load

    def load_or_import(repo_or_dir: Any, model: str, *args: Any, **options: Any) -> Any:
        if not str(repo_or_dir).lower().startswith("pytorch/vision"):
            return load(repo_or_dir, model, *args, **options)
        from torchvision import models

        shims.say(f"torch.hub's {model} is the installed torchvision's", "nothing is downloaded")
        of_the_hub = ("source", "trust_repo", "force_reload", "verbose", "skip_validation")
        return getattr(models, model)(*args, **{k: v for k, v in options.items() if k not in of_the_hub})

    return {"hub.urlopen": opening(shims, torch.hub.urlopen), "hub.load": load_or_import}


@shim("requests.sessions")
def of_requests(shims: Shims, sessions: ModuleType) -> dict[str, Any]:
    """`requests.get`, and all others of that library."""
    request = sessions.Session.request

    def request_or_answer(self: Any, method: str, url: Any, *args: Any, **options: Any) -> Any:
        content = answer(shims, str(url)) if str(method).upper() in ("GET", "HEAD") else None
        if content is None:
            return request(self, method, url, *args, **options)
        response: Any = sys.modules["requests.models"].Response()
        response.status_code, response.reason, response.url = 200, "OK", str(url)
        response.raw, response.encoding = io.BytesIO(content), "utf-8"
        response.headers["Content-Length"] = str(len(content))
        return response

    return {"Session.request": request_or_answer}


@shim("PIL.ImageFont")
def of_pillow(shims: Shims, fonts: ModuleType) -> dict[str, Any]:
    """C reads fonts, and does not know where a file is that the script wrote; Python does."""
    truetype = fonts.truetype

    def opened(font: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(font, (str, os.PathLike)) and os.path.isfile(font):
            with open(font, "rb") as file:
                font = io.BytesIO(file.read())
        return truetype(font, *args, **options)

    return {"truetype": opened}
