"""
Audit of requests: which requests are recorded, and their records.
"""
