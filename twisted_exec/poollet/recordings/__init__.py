"""
The ConsoleRecordings of a pool: they go to its machine runtime, whose reports become their statuses.
"""
