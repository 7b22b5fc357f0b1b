"""
Program: the node server, a kubelet's face for Pods that run in other clusters.
"""
