"""
A line and its company: sessions, scrollback, sharing.
"""
