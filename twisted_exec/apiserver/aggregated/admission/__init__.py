"""
Admission webhooks and policies of the host cluster, for requests that do not pass through it.
"""
