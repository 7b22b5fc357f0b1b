"""
Audit, metrics and health of programs.
"""
