"""
Connections to Spaces, by name.
"""
