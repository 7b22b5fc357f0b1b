"""
The ConsoleRecordings of a pool: what its runtime is to record, and what it reports.
"""
