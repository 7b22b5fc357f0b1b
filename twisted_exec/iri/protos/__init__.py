"""
Messages of the machine runtime interface, generated from the ``.proto`` files beside them.

Written after the public interface of ironcore's runtimes: package, service, method
and field numbers are its contract, so that either side may be somebody else's.
``console.proto`` is a service of our own beside it, which others need not have.
Regenerate from the root of the repository with the *oldest* generator that the declared
protobuf (>= 6.30) accepts, because generated code refuses runtimes older than its
generator::

    pip install grpcio-tools==1.72.1
    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \\
        twisted_exec/iri/protos/{meta,event,machine,console}.proto

No service stubs are generated: client and server take the methods from the descriptor.
A test compares what is committed with the ``.proto`` files.
"""
