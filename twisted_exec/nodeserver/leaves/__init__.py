"""The leaf clusters and their sources."""
