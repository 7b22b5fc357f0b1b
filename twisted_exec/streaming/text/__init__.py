"""
Text that goes on (logs, watches): relayed, over one connection each or shared HTTP/2 connections.
"""
