"""
Wire revisions of the machine runtime interface, translated to and from the current messages.
"""
