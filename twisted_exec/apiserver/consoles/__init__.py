"""
Consoles of Machines: where a stream goes, its ConsoleSession, and when it ends.
"""
