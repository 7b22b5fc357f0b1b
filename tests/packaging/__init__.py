"""The package as users get it."""
