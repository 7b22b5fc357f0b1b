"""
RBAC: rules, policies, the authorizer, and the bootstrap roles.
"""
