"""
Program: API server, poollet and machine runtime in one process, with a PKI of their own.
"""
