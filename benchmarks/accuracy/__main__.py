"""python -m benchmarks.accuracy [-o FILE]: compare with the recorded figures, write docs/accuracy.md.

Needs transformers, peft and bitsandbytes for the rows with adapters on a T4.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from benchmarks.accuracy import adapters, litgpt
from benchmarks.accuracy.page import compare, render
from benchmarks.accuracy.programs import resnet50, transformer
from benchmarks.accuracy.truths import folder, operator_rows
from benchmarks.gpu import taken

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="where to write (docs/accuracy.md)")
    options = parser.parse_args()
    truth = folder()
    if truth is None:
        parser.error("no recorded figures beside the checkout; name their folder in MEMLENS_SHARED")
    figures = [*transformer(truth), *resnet50(truth)]
    logging.disable(logging.WARNING)
    page = render(figures, *compare(operator_rows(truth)))
    page += adapters.section(adapters.results(truth)) + litgpt.section(list(litgpt.results(truth)))
    page += taken.section(taken.results())
    options.output.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
