"""
Rules about the use of consoles, and requests for approval.
"""
