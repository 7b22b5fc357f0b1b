"""Certificates that the programs issue, request and renew themselves, and the directory of them."""
