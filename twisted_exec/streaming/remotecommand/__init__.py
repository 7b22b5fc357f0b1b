"""
Consoles as Kubernetes streams them, over WebSocket or SPDY: both ends, and hops in between that decode them.
"""
