"""
Program: the machinepoollet, between one pool and its runtime.
"""
