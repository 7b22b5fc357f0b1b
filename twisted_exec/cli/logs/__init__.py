"""
``twisted-exec logs``: what a machine's console printed.
"""
