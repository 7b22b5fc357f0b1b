"""
What an API server does differently behind another one, its *host*: whom that has authenticated,
what it lets them do, and what of its objects this server needs.
"""
