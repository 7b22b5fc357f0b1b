"""
Users by OIDC ID token: issuers, their keys, and the mapping of claims.
"""
