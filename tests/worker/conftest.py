"""Fixtures of the worker's tests."""

from tests.worker.desk import room

__all__ = ["room"]
