"""
A client of any Kubernetes-style API server.
"""
