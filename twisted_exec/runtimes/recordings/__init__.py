"""
Recordings of the machines' consoles: ranges of their journals, with signed heads.
"""
