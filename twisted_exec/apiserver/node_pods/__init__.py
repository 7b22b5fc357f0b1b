"""
Pods of the server's own Nodes.
"""
