"""
Destinations of console lines: OTLP collectors, syslog receivers, files.
"""
