"""
CEL expressions of configurations and policies, evaluated about what users send.
"""
