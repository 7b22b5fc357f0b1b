"""
The leaf clusters: sources of leaves, our credentials there, and our Pods in them.
"""
