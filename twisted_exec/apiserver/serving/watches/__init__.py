"""
Watches of objects.
"""
