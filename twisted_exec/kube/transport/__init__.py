"""
HTTP requests and connections to one API server: TLS, proxies, limits.
"""
