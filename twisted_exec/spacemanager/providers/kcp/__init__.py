"""Provider ``kcp``: workspaces of a kcp server."""
