"""
twisted-exec: the serial console of any machine, through one Kubernetes-style
API server.

Applications that embed it import the interfaces from
:mod:`twisted_exec.interfaces`.
"""

__version__ = "0.1.0"
