# SPDX-License-Identifier: Apache-2.0
"""The address of a cluster and our credentials there.

Reads kubeconfigs (files, merged `$KUBECONFIG`, text of a Secret) and the service account of a pod into a
`ClusterConfig`, whose token and certificate are renewed. The auth provider gcp is left to kubernetes_asyncio, which is
imported only then: it costs 0.4 s and 60 MiB (ADR 0015).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from multikueue.api import yaml_text
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import BadInput
from multikueue.kube.rest.oidc import OidcToken
from multikueue.kube.rest.tls import Pem, TlsSource
from multikueue.kube.rest.tokens import ExecToken, FileToken, FixedToken, TokenSource, exec_cluster

_MATERIAL: Final = frozenset({"certificate-authority-data", "client-certificate-data", "client-key-data"})
_SECTIONS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user and groups to impersonate."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster with one identity; `name` is the cluster in messages."""

    name: str
    server: str
    tls: TlsSource
    tokens: TokenSource | None = None
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None
    impersonate: Impersonation | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def load(path: str | Path | None = None, *, context: str | None = None, clock: Clock | None = None) -> ClusterConfig:
    """The cluster of a kubeconfig; without `path` that of `$KUBECONFIG`, of this pod, or of `~/.kube/config`.

    Raises `BadInput` with the file and the entry that is missing or wrong.
    """
    clock = clock or SystemClock()
    if path is not None:
        return from_dict(_read(Path(path)), source=str(path), context=context, base=Path(path).parent, clock=clock)
    files = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not files and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(clock=clock)
    files = files or [Path.home() / ".kube" / "config"]
    merged: dict[str, Any] = {}
    for file in files:
        if file.exists():
            read = _read(file)
            _check_form(read, str(file))
            _merge(merged, _absolute(read, file.parent))
    if not merged:
        names = ", ".join(map(str, files))
        raise BadInput(f"no kubeconfig: {names} is missing, and this is not a pod; set KUBECONFIG or pass --kubeconfig")
    return from_dict(merged, source=" + ".join(map(str, files)), context=context, clock=clock)


def in_cluster(*, root: Path = _SERVICE_ACCOUNT, clock: Clock | None = None) -> ClusterConfig:
    """The cluster of this pod, with its service account."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise BadInput("not in a pod: KUBERNETES_SERVICE_HOST is not set")
    namespace = root / "namespace"
    return ClusterConfig(
        name="in-cluster",
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=TlsSource(authority=Pem(path=root / "ca.crt"), clock=clock),
        tokens=FileToken(root / "token", clock=clock),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_dict(
    config: Mapping[str, Any],
    *,
    source: str = "kubeconfig",
    context: str | None = None,
    base: Path | None = None,
    clock: Clock | None = None,
) -> ClusterConfig:
    """The cluster of a parsed kubeconfig; file names are relative to `base`."""
    clock = clock or SystemClock()
    _check_form(config, source)
    if base is not None:
        config = _absolute(dict(config), base)
    chosen = context or config.get("current-context") or ""
    if not chosen:
        raise BadInput(f"{source}: no current-context; name one")
    named = _entry(config, "contexts", "context", str(chosen), source)
    cluster = _entry(config, "clusters", "cluster", str(named.get("cluster") or ""), source)
    user = _entry(config, "users", "user", str(named["user"]), source) if named.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    scheme, host = _address(server, of=f"{source}: cluster {named.get('cluster')!r}")
    authority = _pem(cluster, "certificate-authority", source)
    tls = TlsSource(
        authority=authority,
        certificate=_pem(user, "client-certificate", source),
        key=_pem(user, "client-key", source),
        verify=not cluster.get("insecure-skip-tls-verify"),
        clock=clock,
    )
    return ClusterConfig(
        name=str(named.get("cluster")),
        server=server,
        tls=tls,
        tokens=_tokens(user, cluster=cluster, authority=authority, tls=tls, config=config, context=chosen, clock=clock),
        namespace=str(named.get("namespace") or "default"),
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url") or _proxy_of_environment(scheme, host),
        impersonate=_impersonation(user, source),
        headers=_basic(user),
    )


def _tokens(
    user: Mapping[str, Any],
    *,
    cluster: Mapping[str, Any],
    authority: Pem,
    tls: TlsSource,
    config: Mapping[str, Any],
    context: str,
    clock: Clock,
) -> TokenSource | None:
    if user.get("tokenFile"):
        return FileToken(Path(user["tokenFile"]), clock=clock)
    if user.get("token"):
        return FixedToken(str(user["token"]))
    if user.get("exec"):
        return ExecToken(user["exec"], tls=tls, cluster=lambda: exec_cluster(cluster, authority.read()), clock=clock)
    provider = user.get("auth-provider")
    if isinstance(provider, Mapping) and provider.get("name") == "oidc":
        return OidcToken(provider.get("config") or {}, clock=clock)
    if provider:
        return LibraryToken(config, context)
    return None


class LibraryToken:
    """The token of the auth provider gcp, which kubernetes_asyncio renews with gcloud."""

    def __init__(self, config: Mapping[str, Any], context: str) -> None:
        self._config = config
        self._context = context
        self._value: str | None = None

    async def token(self) -> str | None:
        """The token of the provider, renewed by the library at the first call and after a `refresh`."""
        if self._value is None:
            from kubernetes_asyncio.client import Configuration
            from kubernetes_asyncio.config import load_kube_config_from_dict

            loaded = Configuration()
            await load_kube_config_from_dict(self._without_keys(), context=self._context, client_configuration=loaded)
            value = str(loaded.api_key.get("BearerToken") or "")
            self._value = value.removeprefix("Bearer ").strip() or None
        return self._value

    async def refresh(self) -> bool:
        """Request another token from the provider at the next request."""
        self._value = None
        return True

    def _without_keys(self) -> dict[str, Any]:
        """The kubeconfig without key material, which the library would write to temporary files and leave there."""
        found = dict(self._config)
        for section, inner in _SECTIONS.items():
            found[section] = [
                {
                    **entry,
                    inner: {name: value for name, value in (entry.get(inner) or {}).items() if name not in _MATERIAL},
                }
                for entry in found.get(section) or ()
            ]
        return found


def _address(server: str, *, of: str) -> tuple[str, str]:
    """Scheme and host of a server's URL. Raises `BadInput`."""
    try:
        parts = urlsplit(server)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, or brackets that do not close
        usable = False
    if not usable:
        raise BadInput(f"{of} has no usable server URL, found {server!r}")
    return parts.scheme, parts.hostname or ""


def _entry(config: Mapping[str, Any], section: str, field_name: str, name: str, source: str) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if entry.get("name") == name:
            return dict(entry.get(field_name) or {})
    known = ", ".join(str(entry.get("name")) for entry in config.get(section) or ()) or "none"
    raise BadInput(f"{source}: {section} has no entry {name!r}; it has {known}")


def _check_form(config: Mapping[str, Any], source: str) -> None:
    """Check that sections are lists and entries mappings. Raises `BadInput` with the path of a wrong one."""
    for section, inner in _SECTIONS.items():
        entries = config.get(section) or []
        if not isinstance(entries, list):
            raise BadInput(f"{source}: {section} must be a list, found {type(entries).__name__}")
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise BadInput(f"{source}: {section}[{index}] must be a mapping, found {type(entry).__name__}")
            if not isinstance(entry.get(inner) or {}, dict):
                found = type(entry[inner]).__name__
                raise BadInput(f"{source}: {section}[{index}].{inner} must be a mapping, found {found}")
            plugin = (entry.get(inner) or {}).get("exec")
            if not isinstance(plugin or {}, dict):
                found = type(plugin).__name__
                raise BadInput(f"{source}: {section}[{index}].{inner}.exec must be a mapping, found {found}")


def _pem(entry: Mapping[str, Any], name: str, source: str) -> Pem:
    data = entry.get(f"{name}-data")
    if data:
        try:
            return Pem(base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError, TypeError) as error:
            raise BadInput(f"{source}: {name}-data is not base64") from error
    return Pem(path=Path(str(entry[name]))) if entry.get(name) else Pem()


def _impersonation(user: Mapping[str, Any], source: str) -> Impersonation | None:
    groups = user.get("as-groups") or []
    if not isinstance(groups, list):
        raise BadInput(f"{source}: as-groups must be a list, found {type(groups).__name__}")
    return Impersonation(str(user["as"]), tuple(map(str, groups))) if user.get("as") else None


def _basic(user: Mapping[str, Any]) -> dict[str, str]:
    if not user.get("username"):
        return {}
    pair = f"{user['username']}:{user.get('password') or ''}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _proxy_of_environment(scheme: str, host: str) -> str | None:
    """The proxy of `HTTPS_PROXY` and `NO_PROXY`, read once: per request it would cost five times the request."""
    from urllib.request import getproxies_environment, proxy_bypass

    if proxy_bypass(host):
        return None
    return getproxies_environment().get(scheme)


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse(path.read_bytes(), source=str(path))
    except OSError as error:
        raise BadInput(f"cannot read the kubeconfig {path}: {error.strerror}") from error


def parse(text: bytes, *, source: str) -> dict[str, Any]:
    """Parse the text of a kubeconfig. Raises `BadInput` with the line of a YAML error."""
    try:
        parsed = yaml_text.load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise BadInput(f"{source}: not YAML{where}: {getattr(error, 'problem', error)}") from error
    if not isinstance(parsed, dict):
        raise BadInput(f"{source}: a kubeconfig is a mapping, found {type(parsed).__name__}")
    return parsed


def _absolute(config: dict[str, Any], base: Path) -> dict[str, Any]:
    """File names in a kubeconfig are relative to the file that holds them."""
    for section, inner, names in (
        ("clusters", "cluster", ("certificate-authority",)),
        ("users", "user", ("client-certificate", "client-key", "tokenFile")),
    ):
        for entry in config.get(section) or ():
            body = entry.get(inner) or {}
            for name in names:
                if body.get(name):
                    body[name] = str(base / str(body[name]))
            plugin: dict[str, Any] = body.get("exec") or {}
            command = str(plugin.get("command") or "")
            if "/" in command:  # a bare name is looked up in $PATH
                body["exec"] = {**plugin, "command": str(base / command)}
    return config


def _merge(into: dict[str, Any], config: Mapping[str, Any]) -> None:
    """As kubectl merges `$KUBECONFIG`: the first to set a value or to name an entry wins."""
    for section in ("clusters", "contexts", "users"):
        present = into.setdefault(section, [])
        names = {entry.get("name") for entry in present}
        present.extend(entry for entry in config.get(section) or () if entry.get("name") not in names)
    if config.get("current-context"):
        into.setdefault("current-context", config["current-context"])
