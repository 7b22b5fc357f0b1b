"""
A small certificate authority, and the directory of certificates that it issues.
"""
