"""
Identity and permissions: credentials, service accounts, stored RBAC and reviews.
"""
