"""
``twisted-exec doctor``: find out why a console does not open.
"""
