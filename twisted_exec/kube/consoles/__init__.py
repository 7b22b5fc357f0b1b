"""
Consoles of machines and Pods, opened through an API server.
"""
