"""
How long users wait while programs are restarted; see :mod:`.bench`.
"""
