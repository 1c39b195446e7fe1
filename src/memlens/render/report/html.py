"""A page as one HTML file: template, style, script and the library of curves (uPlot) are in it.

Everything from the record is text: jinja2 escapes it, and what scripts read is JSON in which no `<` is left.
The page's content security policy allows the two scripts by their hashes and no request of any kind, so that
nothing in a record could run or fetch anything even if an escape were missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from memlens.model import Trace
from memlens.render.report.page import page_of


def to_html(trace: Trace, name: str, **options: Any) -> str:
    """The page of `trace`, called `name`; options as in `page_of`.

    Example: `Path("page.html").write_text(to_html(memlens.load("run.memlens"), "run"), encoding="utf-8")`
    """
    template, library = _template(), _asset("vendor/uPlot.iife.min.js")
    script = _asset("page.js")
    written = template.render(
        page=page_of(trace, name, **options),
        style=_asset("vendor/uPlot.min.css") + _asset("page.css"),
        library=library,
        script=script,
        hashes=" ".join(f"'sha256-{_digest(text)}'" for text in (library, script)),
    )
    return f"{written.strip()}\n"


def as_json(value: Any) -> str:
    r"""JSON that is safe inside <script>: nothing in it ends the element or begins another.

    >>> print(as_json("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(value, separators=(",", ":"))  # ASCII: U+2028 and other odd ones are escaped too
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return files("memlens.render.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = lambda value: Markup(as_json(value))
    return environment.from_string(_asset("page.html.jinja"))
