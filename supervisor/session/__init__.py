"""A session: plays turns, remembers them, makes room."""
