"""Stock kubectls, old and new, and other clients."""
