"""
Parts of every program under twistd: options, start and stop, background work, audit, metrics, health.
"""
