"""Builders of test data, and helpers of several tests."""
