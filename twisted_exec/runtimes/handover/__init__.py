"""
Hand-over of a machine runtime: another process goes on with its machines and sessions.
"""
