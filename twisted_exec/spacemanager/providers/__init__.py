"""
Providers of physical spaces, one module each.
"""
