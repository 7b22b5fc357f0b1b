"""
Program: the node server, which answers as the kubelet of Pods that run in other clusters.
"""

PROGRAM = "exec-nodeserver"
"""Name of the program, of its field manager and of the component in its Events."""
