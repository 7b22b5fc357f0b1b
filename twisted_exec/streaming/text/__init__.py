"""
Texts (logs, screens, recordings): served, and relayed over one connection each or shared HTTP/2
connections.
"""
