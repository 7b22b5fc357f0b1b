"""
Pods of a leaf cluster behind a node server: streams, recorded streams, and followers of logs.
"""
