"""
Identity and permissions: credentials, their options, service accounts, stored RBAC and reviews.
"""
