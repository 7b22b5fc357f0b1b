"""
What it costs that sessions can be resumed and rejoined, and how soon they are; see :mod:`.bench`.
"""
