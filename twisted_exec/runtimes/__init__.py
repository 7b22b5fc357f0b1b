"""
Machine runtimes: machines of this host, lines to existing machines, and the broker of another
cluster.
"""
