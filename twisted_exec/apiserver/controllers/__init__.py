"""
Controllers of a standalone server, and what they share: leader election, Events, coalescing.
"""
