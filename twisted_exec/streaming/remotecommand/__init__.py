"""
Consoles as Kubernetes streams them: channels over WebSocket or SPDY, both ends, and bridges between
protocols.
"""
