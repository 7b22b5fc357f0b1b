"""
CertificateSigningRequests: which signers exist, what each allows, and the controller that signs.
"""
