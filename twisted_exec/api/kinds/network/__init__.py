"""
The kinds of the API groups ``networking`` and ``ipam``: networks, interfaces, prefixes, load
balancers.
"""
