"""Tests of the node server."""
