"""
Authentication and authorization.
"""
