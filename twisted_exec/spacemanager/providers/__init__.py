"""
Providers of physical spaces, one package per type.
"""
