"""
OpenAPI documents.
"""
