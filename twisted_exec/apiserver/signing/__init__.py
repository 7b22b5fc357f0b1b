"""
Signing of certificates: what each signer allows, and who may approve.
"""
