"""
Recordings of consoles: ranges of a journal as asciicasts that prove where they are from.
"""
