"""
Twisted adapters that carry consoles and texts: HTTP, remote commands, and proxies for both.
"""
