"""Consoles and their users, through three programs."""
