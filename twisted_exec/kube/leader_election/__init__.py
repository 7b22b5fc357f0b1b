"""
Leader election by Lease, and services that run only on the leader.
"""
