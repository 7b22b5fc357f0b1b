"""
API servers behind another API server, the *host*.

The host authenticates users, authorizes them by its reviews, and gives access to its objects.
"""
