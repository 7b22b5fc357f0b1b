"""
The leaf clusters: where they are named, our credentials there, and the Pods of ours in them.
"""
