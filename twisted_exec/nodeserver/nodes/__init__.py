"""The Nodes of the root that stand for leaves."""
