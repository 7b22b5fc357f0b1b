"""
``kubectl console``: one console session in the user's terminal.
"""
