"""
Provider ``local``: each space is an API server, a poollet and a runtime in a process of this host.
"""
