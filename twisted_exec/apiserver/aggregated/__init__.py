"""
API servers behind another one, the *host*: users authenticated by the host, authorization by its
reviews, and access to its objects.
"""
