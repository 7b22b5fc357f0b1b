"""
Texts (logs, screens, recordings): served, and relayed over one connection each.
"""
