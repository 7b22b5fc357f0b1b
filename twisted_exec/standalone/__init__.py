"""
Program: all programs on one host, with a PKI of their own.
"""
