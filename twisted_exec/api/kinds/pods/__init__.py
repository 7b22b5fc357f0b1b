"""
The two kinds of Pods: machines that clients see as Pods, and Pods on Nodes.
"""
