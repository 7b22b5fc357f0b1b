"""
Consoles as Kubernetes streams them, over WebSocket or SPDY: both ends, and bridges in between.
"""
