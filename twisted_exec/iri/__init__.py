"""
The machine runtime interface: protos, client, server, exec tokens.
"""
