"""
Requests for stored objects: routes, verbs, watches, discovery and OpenAPI.
"""
