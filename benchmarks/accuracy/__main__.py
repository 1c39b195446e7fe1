"""python -m benchmarks.accuracy [-o FILE]: compare with the recorded figures, write docs/accuracy.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.accuracy.page import compare, render
from benchmarks.accuracy.programs import resnet50, transformer
from benchmarks.accuracy.truths import folder, operator_rows

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="where to write (docs/accuracy.md)")
    options = parser.parse_args()
    truth = folder()
    if truth is None:
        parser.error("no recorded figures beside the checkout; name their folder in MEMLENS_SHARED")
    figures = [*transformer(truth), *resnet50(truth)]
    page = render(figures, *compare(operator_rows(truth)))
    options.output.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
