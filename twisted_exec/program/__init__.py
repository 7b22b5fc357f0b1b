"""
How programs under twistd start, stop, run background work and read their configuration files.
"""
