"""A process that serves the supervisor: its wire, its calls, its life."""
