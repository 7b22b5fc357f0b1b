"""
API servers behind another one, the *host*.

The host authenticates users, authorizes them by its reviews, and gives access to its objects.
"""
