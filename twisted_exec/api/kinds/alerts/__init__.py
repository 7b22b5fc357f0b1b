"""
Alerts about the output of consoles.
"""
