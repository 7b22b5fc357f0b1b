"""``twisted-exec space``: access to the API server of a Space."""
