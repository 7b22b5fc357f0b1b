"""
Alerts: patterns that are searched in the output of machines, as it is printed.
"""
