"""
Identity and permissions: credentials, service accounts, signers, stored RBAC and reviews.
"""
