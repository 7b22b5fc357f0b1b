"""
Tests for :mod:`twisted_exec.auth.jwt`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.auth import forge
from twisted_exec.auth import jwt
from twisted_exec.auth.jwt import Claimed, InvalidToken, UnknownKey
from twisted_exec.auth.jwt_keys import ALGORITHMS, jwks_keys, pem_keys, signing_key

ISSUER = "https://issuer.example"
NOW = 1_800_000_000
CLAIMS = {"iss": ISSUER, "aud": "exec", "sub": "jane", "exp": NOW + 60, "iat": NOW - 60}


class ClaimsCase(SynchronousTestCase):
    """An issuer with one RSA key, ``k1``."""

    def setUp(self) -> None:
        self.keys = jwks_keys(forge.jwks(forge.jwk(forge.rsa_key())))

    def read(
        self,
        token: bytes,
        algorithms: Collection[str] = ("RS256",),
        leeway_seconds: float = 0,
        audiences: Collection[str] = ("exec", "other"),
    ) -> Mapping[str, Any]:
        return jwt.claims_of(
            token,
            self.keys,
            algorithms,
            issuer=ISSUER,
            audiences=audiences,
            now=NOW,
            leeway_seconds=leeway_seconds,
        )

    def assertRefused(self, token: bytes, why: str, **how: Any) -> InvalidToken:
        with self.assertRaises(InvalidToken) as caught:
            self.read(token, **how)
        self.assertIn(why, str(caught.exception))
        return caught.exception


class GenuineTests(ClaimsCase):
    """Signatures of tokens."""

    def test_genuine(self) -> None:
        """A token that the issuer signed is accepted."""
        self.assertEqual(self.read(forge.token(CLAIMS)), CLAIMS)

    def test_curve(self) -> None:
        """A token signed with an elliptic-curve key is accepted."""
        key = signing_key(forge.private_pem(forge.ec_key()), "key")
        self.keys = (key.public,)
        self.assertEqual(self.read(jwt.signed(CLAIMS, key).encode(), ["ES256"]), CLAIMS)

    def test_no_kid(self) -> None:
        """A token without ``kid`` is tried with every key."""
        other = forge.jwk(forge.rsa_key("other"), "k0")
        self.keys = jwks_keys(forge.jwks(other, forge.jwk(forge.rsa_key())))
        self.assertEqual(self.read(forge.token(CLAIMS, kid=None)), CLAIMS)

    def test_too_many_to_try(self) -> None:
        """... but too many keys are refused, without ``kid`` or with the same ``kid``."""
        good = forge.jwk(forge.rsa_key())
        for kid, told in (("k0", {"kid": None}), ("k1", {})):
            self.keys = jwks_keys(forge.jwks(*[forge.jwk(forge.rsa_key("other"), kid)] * 20, good))
            self.assertRefused(forge.token(CLAIMS, **told), "which of many keys")
        self.keys = jwks_keys(forge.jwks(*[forge.jwk(forge.rsa_key("other"), "k0")] * 99, good))
        self.assertEqual(self.read(forge.token(CLAIMS)), CLAIMS)

    def test_foreign_key(self) -> None:
        """A token signed by another key in the issuer's name is refused."""
        forged = forge.token(CLAIMS, forge.rsa_key("attacker"))
        problem = self.assertRefused(forged, "its signature is wrong")
        self.assertNotIsInstance(problem, UnknownKey)

    def test_changed(self) -> None:
        """A genuine token whose claims were changed is refused."""
        header, _, signature = forge.token(CLAIMS).split(b".")
        claims = forge.b64(json.dumps({**CLAIMS, "sub": "root"}).encode())
        self.assertRefused(b".".join((header, claims, signature)), "signature is wrong")

    def test_unknown_key(self) -> None:
        """An unknown key is a distinct error, so that newer keys can be fetched."""
        for token in (
            forge.token(CLAIMS, kid="k2"),
            forge.token(CLAIMS, forge.rsa_key("k2"), kid=None),
        ):
            self.assertIsInstance(self.assertRefused(token, "no key of the issuer"), UnknownKey)

    def test_alg_none(self) -> None:
        """``alg: none``, however it is spelt, is refused, with a signature and without."""
        for spelling in ("none", "None", "NONE", "nOnE", ""):
            token = forge.token(CLAIMS, alg=spelling)
            for each in (token, token.rpartition(b".")[0] + b"."):
                self.assertRefused(each, "its algorithm is not one of RS256")

    def test_no_alg(self) -> None:
        """A header without an algorithm, or with one of another type, is refused."""
        for value in (None, 256, ["RS256"], {"a": "RS256"}, True):
            self.assertRefused(forge.token(CLAIMS, alg=value), "its algorithm is not")

    def test_mac_with_public_key(self) -> None:
        """A MAC keyed with the issuer's public key is no signature."""
        key = forge.rsa_key()
        for secret in (forge.public_pem(key), forge.public_pem(key).strip(), b""):
            with warnings.catch_warnings(record=True):
                self.assertRefused(forge.hmac_token(CLAIMS, secret), "its algorithm is not")
                self.assertRefused(
                    forge.hmac_token(CLAIMS, secret, alg="RS256"), "signature is wrong"
                )

    def test_symmetric_never_allowed(self) -> None:
        """Symmetric algorithms, and unknown ones, cannot be allowed."""
        for algorithms in (["HS256"], ["none"], ["RS256", "HS512"], []):
            with self.assertRaises(ValueError):
                self.read(forge.token(CLAIMS), algorithms)

    def test_algorithm_not_allowed(self) -> None:
        """An algorithm that the operator did not allow is refused, though the key could."""
        self.assertRefused(forge.token(CLAIMS), "not one of PS256", algorithms=["PS256"])

    def test_algorithm_of_key(self) -> None:
        """A key that its issuer made for one algorithm verifies no other."""
        self.keys = jwks_keys(forge.jwks(forge.jwk(forge.rsa_key(), alg="PS256")))
        self.assertRefused(forge.token(CLAIMS), "wrong", algorithms=ALGORITHMS)

    def test_brought_keys(self) -> None:
        """Keys in a token's header, or at URLs that it names, are ignored."""
        attacker = forge.rsa_key("attacker")
        for header in (
            {"jwk": forge.jwk(attacker)},
            {"jku": "https://attacker.example/keys"},
            {"x5u": "https://attacker.example/chain"},
            {"x5c": ["MIIB"]},
        ):
            self.assertRefused(forge.token(CLAIMS, attacker, **header), "signature is wrong")
            self.assertRefused(forge.token(CLAIMS, attacker, kid="mine", **header), "no key of")
            self.assertEqual(self.read(forge.token(CLAIMS, **header)), CLAIMS)

    def test_extensions(self) -> None:
        """A header that changes what is signed, or insists on anything, is refused."""
        for header in (
            {"crit": ["exp"], "exp": NOW},
            {"crit": []},
            {"crit": ["b64"], "b64": False},
            {"b64": False},
            {"b64": True},
        ):
            self.assertRefused(forge.token(CLAIMS, **header), "asks for extensions")

    def test_no_token_in_words(self) -> None:
        """The reason of a refusal contains no part of the token."""
        bad = forge.token({**CLAIMS, "iss": "canary-1", "aud": "canary-2"}, alg="canary-3")
        with self.assertRaises(InvalidToken) as caught:
            self.read(bad)
        self.assertNotIn("canary", str(caught.exception))


class FormTests(ClaimsCase):
    """Malformed tokens."""

    def test_parts(self) -> None:
        """A token has three parts, so the five of an encrypted token are refused."""
        good = forge.token(CLAIMS)
        for token in (b"", b"token", b"a.b", good + b".", good + b".x.y", good + b"." + good):
            self.assertRefused(token, "no JWT of three parts")

    def test_oversized(self) -> None:
        """An oversized token is refused before it is parsed."""
        self.assertRefused(forge.token({**CLAIMS, "pad": "x" * (40 << 10)}), "longer than 32 KiB")
        self.assertRefused(forge.token(CLAIMS, pad="x" * (5 << 10)), "its header is not")

    def test_deep(self) -> None:
        """Deep nesting in the header or the payload is refused."""
        deep = b"[" * 6000 + b"]" * 6000
        good = json.dumps(CLAIMS).encode()
        for header, payload in (
            (b'{"alg":"RS256","kid":"k1"}', good[:-1] + b',"x":' + deep + b"}"),
            (b'{"alg":"RS256","kid":"k1","x":' + deep[5500:6500] + b"}", good),
        ):
            self.assertRefused(forge.raw(header, payload, forge.rsa_key()), "is not a JSON object")

    def test_duplicate_keys(self) -> None:
        """A duplicate JSON key is refused, because parsers disagree about its value."""
        head, good = b'{"alg":"RS256","kid":"k1"}', json.dumps(CLAIMS).encode()
        for header, payload in (
            (head, b'{"sub":"root",' + good[1:]),
            (b'{"alg":"none",' + head[1:], good),
            (head, good[:-1] + b',"x":{"a":1,"a":2}}'),
        ):
            token = forge.raw(header, payload, forge.rsa_key())
            self.assertRefused(token, "has a key more than once")

    def test_not_json(self) -> None:
        """
        A part that is no JSON object in UTF-8 is refused: NaN, huge numbers, lone surrogates too.
        """
        head = b'{"alg":"RS256","kid":"k1"}'
        for payload in (
            b"",
            b"[]",
            b'"x"',
            b"\xff",
            b'{"exp":NaN}',
            b'{"exp":1e999}',
            b'{"exp":' + b"9" * 5000 + b"}",
            b'{"sub":"\\ud800"}',
            b"{}{}",
        ):
            token = forge.raw(head, payload, forge.rsa_key())
            self.assertRefused(token, "its payload is not a JSON object")

    def test_other_base64(self) -> None:
        """Only base64url without padding is read: one token has one spelling."""
        head, payload, signature = forge.token(CLAIMS).split(b".")
        for token in (
            b".".join((head + b"=", payload, signature)),
            b".".join((head[:8] + b"\n" + head[8:], payload, signature)),
            b".".join((head, payload, signature + b"==")),
            b".".join((head, payload, signature[:8] + b" " + signature[8:])),
            b".".join((head, payload, signature[:-1] + b"\xe9")),
        ):
            self.assertRefused(token, "")

    def test_kid_is_text(self) -> None:
        """A ``kid`` that is not a string is refused."""
        for kid in (1, ["k1"], {"k1": 1}, True):
            self.assertRefused(forge.token(CLAIMS, kid=kid), "its kid is no string")


class ClaimTests(ClaimsCase):
    """Claims: issuer, audience, and times."""

    def test_issuer(self) -> None:
        """The issuer must match exactly."""
        for issuer in (ISSUER + "/", ISSUER.upper(), "", None, [ISSUER], {"a": ISSUER}):
            self.assertRefused(forge.token({**CLAIMS, "iss": issuer}), "its issuer is another")

    def test_audience(self) -> None:
        """A token for another audience is refused; one for several, including ours, is not."""
        for audience in ("another", "EXEC", "exec ", [], ["another"], ""):
            self.assertRefused(forge.token({**CLAIMS, "aud": audience}), "another audience")
        self.read(forge.token({**CLAIMS, "aud": ["another", "other"]}))

    def test_audience_types(self) -> None:
        """An audience of another type, or none, is refused."""
        for audience in (None, 1, {"exec": 1}, ["exec", 1], [["exec"]], True):
            self.assertRefused(forge.token({**CLAIMS, "aud": audience}), "its audience is neither")
        self.assertRefused(forge.token({"iss": ISSUER, "exp": NOW + 1}), "its audience is neither")

    def test_nobodys_audience(self) -> None:
        """Without audiences of its own, the server refuses every token."""
        self.assertRefused(forge.token(CLAIMS), "another audience", audiences=())

    def test_expired(self) -> None:
        """A token is valid until ``exp``, exclusively."""
        self.read(forge.token({**CLAIMS, "exp": NOW + 1}))
        self.assertRefused(forge.token({**CLAIMS, "exp": NOW}), "it has expired")
        self.assertRefused(forge.token({**CLAIMS, "exp": NOW - 1}), "it has expired")

    def test_never_expires(self) -> None:
        """A token without ``exp`` is refused."""
        endless = {name: value for name, value in CLAIMS.items() if name != "exp"}
        self.assertRefused(forge.token(endless), "it never expires")

    def test_not_yet(self) -> None:
        """A token is valid from ``nbf`` on, and ``iat`` must not be in the future."""
        self.read(forge.token({**CLAIMS, "nbf": NOW, "iat": NOW}))
        self.assertRefused(forge.token({**CLAIMS, "nbf": NOW + 1}), "not valid yet")
        self.assertRefused(forge.token({**CLAIMS, "iat": NOW + 1}), "issued in the future")

    def test_clock_skew(self) -> None:
        """Clocks may differ by the leeway, in both directions, and by no more."""
        for name, inside, outside in (("exp", -9, -10), ("nbf", 10, 11), ("iat", 10, 11)):
            self.read(forge.token({**CLAIMS, name: NOW + inside}), leeway_seconds=10)
            late = forge.token({**CLAIMS, name: NOW + outside})
            self.assertRefused(late, "it ", leeway_seconds=10)

    def test_leeway_is_bounded(self) -> None:
        """The leeway is limited, so that it cannot make tokens last."""
        for seconds in (-1, 301, float("inf"), float("nan")):
            with self.assertRaises(ValueError):
                self.read(forge.token(CLAIMS), leeway_seconds=seconds)

    def test_moments(self) -> None:
        """Times must be numbers in the range of the calendar."""
        for name in ("exp", "nbf", "iat"):
            for value in (None, "1", True, [NOW], {}):
                self.assertRefused(
                    forge.token({**CLAIMS, name: value}), f"its {name} is not a number"
                )
            for value in (-1, 10**15, 1e18):
                self.assertRefused(
                    forge.token({**CLAIMS, name: value}), f"its {name} is out of range"
                )

    def test_fraction(self) -> None:
        """Times may have fractions of a second."""
        self.read(forge.token({**CLAIMS, "exp": NOW + 0.5}))


class ClaimedTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.jwt.claimed`."""

    def test_claimed(self) -> None:
        """``claimed`` returns issuer, key, algorithm and end without verifying the signature."""
        token = forge.token(CLAIMS, forge.rsa_key("attacker"))
        self.assertEqual(jwt.claimed(token), Claimed(ISSUER, "k1", "RS256", CLAIMS["exp"]))

    def test_other_tokens(self) -> None:
        """Texts that are not JWTs return None; claims of a wrong type are returned as empty."""
        for token in (b"", b"abcdef.0123456789abcdef", b"a.b.c", b"x" * 40000, b"\xff.\xff.\xff"):
            self.assertIsNone(jwt.claimed(token))
        self.assertEqual(jwt.claimed(forge.token({"iss": 5}, kid=5, alg=5)), Claimed("", "", ""))


class SignedTests(ClaimsCase):
    """Tests for :func:`twisted_exec.auth.jwt.signed`."""

    def test_both_ways(self) -> None:
        """A token signed here is verified with the key's public half, under its id."""
        key = signing_key(forge.private_pem(forge.rsa_key("ours")), "key")
        token = jwt.signed(CLAIMS, key).encode()
        self.keys = pem_keys(forge.public_pem(forge.rsa_key("ours")), "key")
        self.assertEqual(self.read(token), CLAIMS)
        self.assertEqual(
            jwt.claimed(token), Claimed(ISSUER, self.keys[0].kid, "RS256", CLAIMS["exp"])
        )

    def test_text(self) -> None:
        """A claim can hold any text."""
        key = signing_key(forge.private_pem(forge.ec_key()), "key")
        self.keys = (key.public,)
        claims = {**CLAIMS, "sub": "jäne \U0001f600 \n"}
        self.assertEqual(self.read(jwt.signed(claims, key).encode(), ["ES256"]), claims)
