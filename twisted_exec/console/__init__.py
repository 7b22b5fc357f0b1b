"""
A console line and its viewers: shared console, floor, input, output and log.
"""
