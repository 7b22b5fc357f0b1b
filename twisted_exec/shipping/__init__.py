"""Console lines for log collectors."""
