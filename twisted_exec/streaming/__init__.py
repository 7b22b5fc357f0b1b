"""
Twisted adapters that carry a console: upgrade, splice, WebSocket, proxy.
"""
