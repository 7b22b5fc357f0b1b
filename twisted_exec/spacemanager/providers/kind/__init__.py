"""
Provider ``kind``: clusters that the ``kind`` program creates on this host.
"""
