"""
The ConsoleRecordings of a pool: the poollet sends them to the machine runtime and writes their statuses from its reports.
"""
