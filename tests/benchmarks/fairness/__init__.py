"""
Delay of a quiet user beside a user at full speed; see :mod:`.bench`.
"""
