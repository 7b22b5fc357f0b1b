"""
Consoles of Machines: where a stream goes, who may open it, its ConsoleSession, and when it ends.
"""
