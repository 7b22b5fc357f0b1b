"""
Live console sessions: the registry, limits, idle timeouts, and reviews of the right to a session.
"""
