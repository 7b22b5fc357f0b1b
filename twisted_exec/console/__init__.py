"""
A console line and its viewers: session, journal, floor and log.
"""
