"""
Program: all of them on one host, with their own PKI.
"""
