"""Shells, the processes that they start, and what still runs after a call."""
