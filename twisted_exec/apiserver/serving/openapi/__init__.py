"""
OpenAPI documents: for ``kubectl explain``, validation by clients, and generated clients.
"""
