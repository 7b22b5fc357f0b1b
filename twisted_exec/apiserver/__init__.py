"""
Program: the Kubernetes-style API server.
"""
