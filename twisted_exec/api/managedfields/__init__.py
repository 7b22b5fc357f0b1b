"""
Field management and server-side apply: ``metadata.managedFields`` and the structured merge.
"""
