"""The Machines of the pool."""
