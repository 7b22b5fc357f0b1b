"""
What Spaces cost: their manager, and clients of them; see :mod:`.bench`.
"""
