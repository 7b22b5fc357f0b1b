"""
HTTP/1.1 on twisted.web: the site and its limits, routes, upgrades, WebSockets.
"""
