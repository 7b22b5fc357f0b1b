"""
The console and log routes of the poollet, and the endpoints of the runtime that they lead to.
"""
