"""
Program: the Kubernetes-style API server.
"""

PROGRAM = "exec-apiserver"
