"""
Parts of every program under twistd.

These are options, start and stop, background work, systemd, hand-over, audit, metrics and health.
"""
