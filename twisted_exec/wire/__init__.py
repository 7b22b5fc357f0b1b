"""
Codecs: bytes in, events out, no reactor.
"""
