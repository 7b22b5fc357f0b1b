"""
The certificate of an agent.

Its common name is that of the agent. It has no organization, so a server of a release without agents gives it no
group, and no rights. The person for whom the agent acts is in a URI among the subject alternative names, which no other
signer of this server puts into the certificate of a client.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from cryptography import x509

from twisted_exec.api.agents import (
    AGENTS,
    PERSON_GROUPS,
    PERSON_UID,
    agent_name,
    is_agent,
    label_problem,
)
from twisted_exec.api.users import AUTHENTICATED, User
from twisted_exec.tls.pem import UNREADABLE
from twisted_exec.tls.server import PeerCertificate

LONGEST_URI = 8192
"""Characters; a certificate must fit into a TLS handshake."""
_BEGIN = "twisted-exec://agent?"
_MOST_FIELDS = 1024


def person_uri(person: User, label: str) -> str:
    """
    Return the URI of an agent's person for the certificate.

    :param person: whose ``system:authenticated`` is left out.
    """
    groups = [("group", each) for each in person.groups if each != AUTHENTICATED]
    uid = [("uid", person.uid)] if person.uid else []
    return _BEGIN + urlencode([("person", person.name), ("label", label), *uid, *groups])


def agent_of(peer: PeerCertificate) -> User | None:
    """
    Return the agent that a verified certificate names.

    :return: ``None`` if the certificate is not that of an agent.
    """
    if not is_agent(peer.common_name) or peer.organizations:
        return None
    try:
        extension = peer.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, *UNREADABLE):
        return None
    names = list(extension.value)
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        return None
    uri = names[0].value
    if not uri.startswith(_BEGIN) or len(uri) > LONGEST_URI:
        return None
    try:
        pairs = parse_qsl(
            uri.removeprefix(_BEGIN), strict_parsing=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        return None
    fields = dict(pairs)
    person, label = fields.get("person", ""), fields.get("label", "")
    # The name must have one meaning: that of the person in the URI.
    if label_problem(label) or is_agent(person) or peer.common_name != agent_name(person, label):
        return None
    groups = tuple(value for name, value in pairs if name == "group")
    extra = {PERSON_GROUPS: groups} if groups else {}
    if uid := fields.get("uid", ""):
        extra[PERSON_UID] = (uid,)
    return User(peer.common_name, (AGENTS, AUTHENTICATED), extra=extra)
