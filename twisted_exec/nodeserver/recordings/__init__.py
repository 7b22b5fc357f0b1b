"""
Recordings of exec and attach in the Pods of leaves.
"""
