"""
Who is known to the server: credentials, their options, service accounts, stored RBAC and reviews.
"""
