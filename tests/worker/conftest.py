"""Fixtures of the worker's tests."""

from tests.worker.desk import ordinary_room, room

__all__ = ["ordinary_room", "room"]
