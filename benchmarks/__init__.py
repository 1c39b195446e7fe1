"""Measurements that are no tests: accuracy against recorded truths, speed as ratios within one run."""
