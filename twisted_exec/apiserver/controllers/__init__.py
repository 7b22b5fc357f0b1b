"""
Controllers of an API server, and what they share: leader election, Events, coalescing.
"""
