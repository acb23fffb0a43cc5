"""From a request for a worker to a process that is confined and serves."""
