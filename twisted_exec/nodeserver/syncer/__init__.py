"""
The syncer: runs the Pods of the root in their leaves and copies their status back.
"""
