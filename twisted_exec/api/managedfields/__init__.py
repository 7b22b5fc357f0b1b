"""
Field management and server-side apply: ``metadata.managedFields``.
"""
