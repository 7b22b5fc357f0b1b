"""
Pods: those that run on Nodes, and machines that are shown as Pods.
"""
