"""
A small process that outlives the runtime: the parent of pty machines, and a store of descriptors.
"""
