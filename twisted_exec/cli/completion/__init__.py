"""
Completion of command lines in shells, and in kubectl.
"""
