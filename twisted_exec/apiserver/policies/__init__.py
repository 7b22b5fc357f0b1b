"""
Console policies and requests: who may use which console, when, and with whose approval.
"""
