"""
``twisted-exec space``: commands that lead to the API server of a Space.
"""
