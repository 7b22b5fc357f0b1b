"""
Console lines for log collectors: journals are read from cursors and sent to sinks.
"""
