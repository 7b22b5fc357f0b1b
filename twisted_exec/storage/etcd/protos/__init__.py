"""
The part of etcd's interface that is used here, generated from the ``.proto`` file beside this.

Regenerate from the root of the repository, as :mod:`twisted_exec.iri.protos` and for the same
reason with the oldest generator::

    pip install grpcio-tools==1.72.1
    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \\
        twisted_exec/storage/etcd/protos/etcd.proto
"""
