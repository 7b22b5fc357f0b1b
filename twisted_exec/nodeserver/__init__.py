"""
Program: the node server, a kubelet's face for Pods that run in other clusters.
"""

PROGRAM = "exec-nodeserver"
"""As which it is started, writes to API servers, and is told of in Events."""
