"""
``twisted-exec screen``: what a terminal would show of a machine's console.
"""
