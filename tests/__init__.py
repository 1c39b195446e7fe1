"""Tests of memlens; `tests.support` has what they build their data with."""
