"""
Spaces as their users see them: a live connection by name.
"""
