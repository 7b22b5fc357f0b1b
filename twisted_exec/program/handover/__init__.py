"""
Hand-over: a successor takes the place of a running program, and its sessions go on.
"""
