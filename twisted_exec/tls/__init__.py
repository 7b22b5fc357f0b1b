"""
TLS: certificates that are loaded, reloaded and issued; verified connections and endpoints.
"""
