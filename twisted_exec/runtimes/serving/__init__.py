"""
The stream server of a runtime and of the machine broker: addresses, routes and their options.
"""
