"""
Consoles of Machines: their streams, logs, policies, approvals and recordings.
"""
