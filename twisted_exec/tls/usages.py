"""Extended usages of certificates that cryptography does not name."""

from cryptography import x509

DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.5.5.7.3.36")
"""Of recorders' certificates, RFC 9336."""
