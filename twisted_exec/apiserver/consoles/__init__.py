"""
Consoles of Machines: the route, permission, ConsoleSession and end of each stream.
"""
