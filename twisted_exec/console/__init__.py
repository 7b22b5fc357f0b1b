"""A console line and its viewers."""
