"""TLS: certificates, verified connections and endpoints."""
