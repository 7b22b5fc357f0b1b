"""
``twisted-exec iri``: commands that call a machine runtime directly.
"""
