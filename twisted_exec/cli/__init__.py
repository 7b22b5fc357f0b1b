"""
The user's end: kubectl-console and twisted-exec.
"""
