"""
Seen from outside: audit, metrics, health.
"""
