"""
``twisted-exec recording``: recordings of consoles.
"""
