"""A package with a training program in it: `python -m tiny_segmenter.train`, or `segment-train`.

In examples/package: memlens predict -m tiny_segmenter.train --gpu T4 -- --epochs 3
Installed:           memlens predict --gpu T4 segment-train --epochs 3
"""
