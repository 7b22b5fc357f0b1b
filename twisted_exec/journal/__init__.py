"""
The journal of a console: everything that its line printed, in memory and on disk.
"""
