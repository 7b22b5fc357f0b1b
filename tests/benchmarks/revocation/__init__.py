"""
Time from the withdrawal of a right to the last byte of its sessions; see :mod:`.bench`.
"""
