"""Any record as one HTML page that opens offline.

`page_of` says what is on it, `to_html` writes it. Nothing here measures or predicts.
"""

from __future__ import annotations

from memlens.render.report.html import to_html

__all__ = ["to_html"]
