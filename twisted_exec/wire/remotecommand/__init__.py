"""
Console sessions on the wire: control messages, and the streams of a console over SPDY.
"""
