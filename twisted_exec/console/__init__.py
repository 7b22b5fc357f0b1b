"""
A console line and its viewers: shared console, journal, floor and log.
"""
