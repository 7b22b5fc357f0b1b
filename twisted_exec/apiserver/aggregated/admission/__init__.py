"""
Admission by the webhooks and policies of the host.
"""
