"""
Pods of the server's own Nodes: their verbs, and streams to their kubelets.
"""
