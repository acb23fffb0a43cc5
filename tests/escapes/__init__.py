"""Attempts to get out of the sandbox, as root and as an ordinary user, on every rung there is."""
