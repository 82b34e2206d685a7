# SPDX-License-Identifier: Apache-2.0
"""Service-account tokens: JSON web tokens with ES256, and the issuer's discovery documents.

A token of an account or pod that was deleted, or recreated with the same name, is not valid.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.registry import objects

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_KEY_ID: Final = "authentication.kubernetes.io/credential-id"


class Tokens:
    """Signs and checks the tokens of one cluster."""

    def __init__(self, context: ServerContext, key: bytes) -> None:
        """`key` is a P-256 private key, PEM."""
        loaded = serialization.load_pem_private_key(key, password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"the signing key is of type {type(loaded).__name__}, expected an elliptic curve key")
        self._context = context
        self._key = loaded
        self._public = loaded.public_key()
        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self._key_id = _encode(hashlib.sha256(der).digest())
        self._checked: dict[str, JsonObject] = {}

    def issue(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        audiences: Sequence[str],
        seconds: int,
        bound: Mapping[str, JsonObject],
    ) -> str:
        """A token of a service account; `bound` names the pod, secret or node that it is bound to."""
        now = int(self._context.now().timestamp())
        private: JsonObject = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **bound}
        claims = {
            "aud": list(audiences) or [ISSUER],
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": objects.new_uid(self._context.rng),
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        head = _encode(documents.dump({"alg": "ES256", "kid": self._key_id}))
        signed = f"{head}.{_encode(documents.dump(claims))}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def check(self, token: str, audiences: Sequence[str] = ()) -> tuple[User, list[str]] | None:
        """The user of the token and the matching audiences; None if it is not valid."""
        claims = self._claims(token)
        now = self._context.now().timestamp()
        if claims is None or not claims.get("nbf", 0) <= now + 60 or now >= claims.get("exp", 0):
            return None
        wanted = list(audiences) or [ISSUER]
        given = claims.get("aud", ())
        fitting = [audience for audience in wanted if audience in given]
        if not fitting:
            return None
        private = documents.child(claims, "kubernetes.io")
        namespace = private.get("namespace", "")
        account = documents.child(private, "serviceaccount")
        stored = self._context.get("serviceaccounts", f"{namespace}/{account.get('name', '')}")
        if stored is None or stored["metadata"]["uid"] != account.get("uid"):
            return None
        extra = {_KEY_ID: (f"JTI={claims.get('jti', '')}",)}
        for kind in ("pod", "node"):
            bound = documents.child(private, kind)
            if not bound:
                continue
            key = f"{namespace}/{bound.get('name')}" if kind == "pod" else str(bound.get("name"))
            found = self._context.get(f"{kind}s", key)
            if found is None or found["metadata"]["uid"] != bound.get("uid"):
                return None
            extra[f"authentication.kubernetes.io/{kind}-name"] = (bound["name"],)
            extra[f"authentication.kubernetes.io/{kind}-uid"] = (bound["uid"],)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return User(claims["sub"], groups, account["uid"], extra), fitting

    def refusal(self, token: str, audiences: Sequence[str] = ()) -> str:
        """Why a token is not valid, as reviews report it."""
        claims, wanted = self._claims(token), list(audiences) or [ISSUER]
        why = "invalid bearer token"
        if claims is None or set(wanted) & set(claims.get("aud", ())):
            return why
        given, expected = (" ".join(f'"{entry}"' for entry in values) for values in (claims.get("aud", ()), wanted))
        return f"[{why}, token audiences [{given}] is invalid for the target audiences [{expected}]]"

    def keys(self) -> JsonObject:
        """The public keys (`/openid/v1/jwks`)."""
        numbers = self._public.public_numbers()
        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "EC",
                    "kid": self._key_id,
                    "crv": "P-256",
                    "alg": "ES256",
                    "x": _encode(numbers.x.to_bytes(32, "big")),
                    "y": _encode(numbers.y.to_bytes(32, "big")),
                }
            ]
        }

    def configuration(self) -> JsonObject:
        """The issuer's configuration, which names the address of the keys."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def _claims(self, token: str) -> JsonObject | None:
        kept = self._checked.get(token)
        if kept is not None:
            return kept
        try:
            head, body, signature = token.split(".")
            raw = _decode(signature)
            if documents.load_object(_decode(head)).get("alg") != "ES256" or len(raw) != 64:
                return None
            der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            self._public.verify(der, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
            claims = documents.load_object(_decode(body))
        except (ValueError, InvalidSignature):
            return None
        if len(self._checked) > 1000:
            self._checked.clear()
        self._checked[token] = claims
        return claims if claims.get("iss") == ISSUER else None


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
