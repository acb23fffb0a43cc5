"""Benchmarks against lower bounds measured in the same run."""
