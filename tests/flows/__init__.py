"""Whole chains, with the programs as users start them."""
