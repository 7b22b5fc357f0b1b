"""
The store of one API server: a SQLite file.
"""
