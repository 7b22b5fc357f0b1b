"""
Program: the machinepoollet, which connects one pool to its machine runtime.
"""
