"""
How long one user waits while another works at full speed; see :mod:`.bench`.
"""
