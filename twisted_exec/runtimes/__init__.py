"""
Machine runtimes: machines of this host, lines to existing machines, and the machine broker.
"""
