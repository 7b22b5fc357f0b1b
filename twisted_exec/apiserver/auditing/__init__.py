"""
Audit of requests.
"""
