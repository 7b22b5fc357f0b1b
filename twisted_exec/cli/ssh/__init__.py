"""Consoles through stock ssh, which runs this program as its ``ProxyCommand``."""
