"""The controller of Spaces."""
