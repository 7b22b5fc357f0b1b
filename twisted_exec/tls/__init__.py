"""
Certificates: load, reload, issue; verified endpoints.
"""
