"""
Limits on poollets, node servers and members of the exposed group beyond RBAC.
"""
