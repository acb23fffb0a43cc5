"""The scripted model server, and the rehearsal that it plays."""
