"""
SPDY/3.1: frames, header blocks, and one end of a connection.
"""
