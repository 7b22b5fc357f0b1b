"""
Providers of physical spaces, by type.
"""
