"""
Contract of every :class:`~twisted_exec.apiserver.signing.interfaces.ISigner`.

Inherit :class:`SignerContract` beside ``SynchronousTestCase``, set ``signed`` and implement
``make_signer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtensionOID, NameOID
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer
from zope.interface.verify import verifyObject

from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.signing.interfaces import ISigner
from twisted_exec.apiserver.signing.requests import subject_of
from twisted_exec.auth.interfaces import Decision, IAuthorizer
from twisted_exec.auth.rules import Attributes

SERVER = ("digital signature", "server auth")
CLIENT = ("digital signature", "client auth")


@implementer(IAuthorizer)
class Denying:
    """Denies everything."""

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
        return succeed(Decision(False))


@dataclass(frozen=True)
class Signed:
    """A request that the signer signs once it is approved."""

    signer_name: str
    user: str
    groups: Sequence[str] = ()
    names: Sequence[x509.GeneralName] = ()
    usages: Sequence[str] = CLIENT


class SignerContract:
    """Tests; ``self`` is a ``SynchronousTestCase``."""

    signed: Signed

    def make_signer(self) -> ISigner:
        """A signer of a server whose authorizer denies everything, and whose store is empty."""
        raise NotImplementedError

    def request(
        self,
        groups: Sequence[str] | None = None,
        extension: x509.ExtensionType | None = None,
        key: Any = None,
    ) -> x509.CertificateSigningRequest:
        """Build the request for :attr:`signed`, with the given parts replaced."""
        groups = self.signed.groups if groups is None else groups
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, self.signed.user))
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
        if extension is None and self.signed.names:
            extension = x509.SubjectAlternativeName(self.signed.names)
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())

    def csr(self, usages: Sequence[str] | None = None, user: str = "stranger") -> dict[str, Any]:
        """Return a CertificateSigningRequest object around a request."""
        usages = list(self.signed.usages if usages is None else usages)
        return {"spec": {"signerName": self.signed.signer_name, "usages": usages, "username": user}}

    def test_interface(self: Any) -> None:
        """It provides the interface."""
        verifyObject(ISigner, self.make_signer())

    def test_shape(self: Any) -> None:
        """A valid request has no problem, with or without the usage key encipherment."""
        signer, request = self.make_signer(), self.request()
        for usages in (self.signed.usages, (*self.signed.usages, "key encipherment")):
            self.assertEqual(signer.shape_problem(self.csr(usages), request), "")

    def test_usages(self: Any) -> None:
        """
        Only the signer's own usages are accepted: none, others or additional ones are refused.
        """
        signer, request = self.make_signer(), self.request()
        other = CLIENT if self.signed.usages == SERVER else SERVER
        for usages in (
            (),
            other,
            (*self.signed.usages, *other),
            (*self.signed.usages, "cert sign"),
        ):
            problem = signer.shape_problem(self.csr(usages), request)
            self.assertIn("its usages must be", problem, usages)

    def test_masters(self: Any) -> None:
        """No signer signs a request for the group system:masters."""
        request = self.request([*self.signed.groups, MASTERS])
        self.assertNotEqual(self.make_signer().shape_problem(self.csr(), request), "")

    def test_names_of_other_types(self: Any) -> None:
        """
        Names other than hosts are refused, because verifiers may take them for users or services.
        """
        for name in (x509.RFC822Name("a@b.example"), x509.UniformResourceIdentifier("spiffe://a")):
            request = self.request(
                extension=x509.SubjectAlternativeName([*self.signed.names, name])
            )
            problem = self.make_signer().shape_problem(self.csr(), request)
            self.assertIn("subject alternative names", problem)

    def test_unreadable_extensions(self: Any) -> None:
        """A request whose extensions cannot be read is refused."""
        unreadable = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"nothing")
        request = self.request(extension=unreadable)
        problem = self.make_signer().shape_problem(self.csr(), request)
        self.assertEqual(problem, "its extensions cannot be read")

    def test_weak_key(self: Any) -> None:
        """An RSA key of 1024 bits is refused."""
        weak = rsa.generate_private_key(65537, 1024)
        problem = self.make_signer().shape_problem(self.csr(), self.request(key=weak))
        self.assertIn("its RSA key must have", problem)

    def test_stranger(self: Any) -> None:
        """A request of a user without any permission waits for approval, with a reason."""
        asking = self.make_signer().refusal(self.csr(), subject_of(self.request()))
        self.assertNotEqual(self.successResultOf(Deferred.fromCoroutine(asking)), "")

    def test_organizations(self: Any) -> None:
        """The certificate has the organizations of the request."""
        organizations = self.make_signer().organizations(subject_of(self.request()))
        self.assertEqual(list(organizations), list(self.signed.groups))
