# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig of a MultiKueueCluster, and what is wrong with it (`docs/spec/multikueue.md §1.4`).

Finds and parses it; `cluster_profiles` reads a ClusterProfile, `multikueue.dispatch.protocol.kubeconfigs` judges. An
agent-backed cluster has a kubeconfig too, because the CRD requires a source: it names a server that does not exist, and
is judged all the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

import yaml

from manager.context import ManagerContext
from manager.dispatch.transport.cluster_profiles import PROFILE_GATE, JudgedKubeconfig, access_of
from multikueue.api import yaml_text
from multikueue.api.constants import KUBECONFIG_SECRET_KEY, KubeConfigLocation
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.api.resource import CLUSTER_PROFILES, SECRETS
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem, judge

PATH_PREFIX: Final = Path("/etc/multikueue/kubeconfigs")
_FILE_RECHECK: Final = timedelta(seconds=2)
_MAX_BYTES: Final = 1 << 20  # the size of a Secret; a file beyond it is no kubeconfig


class KubeconfigReader:
    """Reads kubeconfigs from Secrets of the manager's namespace and from files below one folder."""

    def __init__(self, context: ManagerContext, *, prefix: Path = PATH_PREFIX) -> None:
        self._context = context
        self._prefix = prefix

    def problem(self, cluster: JsonObject) -> KubeconfigProblem | None:
        """What is wrong with the cluster's source; None when nothing is."""
        found = self.read(cluster)
        return found if isinstance(found, KubeconfigProblem) else None

    def read(self, cluster: JsonObject) -> JudgedKubeconfig | KubeconfigProblem:
        """The kubeconfig of the cluster's source, or what is wrong with it."""
        source: JsonObject = (cluster.get("spec") or {}).get("clusterSource") or {}
        reference: JsonObject = source.get("clusterProfileRef") or {}
        if reference:
            if not self._context.configuration.gate(PROFILE_GATE):
                return KubeconfigProblem(
                    ClusterReason.CLUSTER_PROFILE_FEATURE_DISABLED, "the gate MultiKueueClusterProfile is off"
                )
            return self._in_profile(str(reference.get("name") or ""))
        kubeconfig: JsonObject = source.get("kubeConfig") or {}
        location = str(kubeconfig.get("location") or "")
        if kubeconfig.get("locationType") == KubeConfigLocation.PATH:
            return self._in_file(location)
        return self._in_secret(location)

    def recheck_after(self, cluster: JsonObject) -> timedelta | None:
        """When to read again a source that sends no events."""
        source: JsonObject = (cluster.get("spec") or {}).get("clusterSource") or {}
        is_path = (source.get("kubeConfig") or {}).get("locationType") == KubeConfigLocation.PATH
        return _FILE_RECHECK if is_path else None

    def _in_profile(self, name: str) -> JudgedKubeconfig | KubeconfigProblem:
        key = Key(self._context.namespace, name)
        profile = self._context.caches.view(CLUSTER_PROFILES).object(key)
        if profile is None:
            return KubeconfigProblem(ClusterReason.BAD_CLUSTER_PROFILE, f'ClusterProfile "{key}" not found')
        return access_of(profile, self._context.configuration.multikueue.cluster_profile)

    def _in_secret(self, name: str) -> JudgedKubeconfig | KubeconfigProblem:
        where = f'Secret "{self._context.namespace}/{name}"'
        secret = self._context.caches.view(SECRETS).object(Key(self._context.namespace, name))
        if secret is None:
            return _bad(f"{where} not found")
        encoded = (secret.get("data") or {}).get(KUBECONFIG_SECRET_KEY)
        if not encoded:
            return _bad(f'{where} has no key "{KUBECONFIG_SECRET_KEY}"')
        try:
            text = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            return _bad(f"{where}: {error}")
        return _parse(text, where)

    def _in_file(self, location: str) -> JudgedKubeconfig | KubeconfigProblem:
        path = Path(location)
        if not path.is_absolute() or ".." in path.parts:
            return _bad(f'path "{location}" is not absolute or contains ".."')
        try:
            real = path.resolve(strict=True)
            if not real.is_relative_to(self._prefix):
                return _bad(f'path "{location}" is not below {self._prefix}')
            if real.stat().st_size > _MAX_BYTES:
                return _bad(f'path "{location}": too large')
            text = real.read_bytes()
        except OSError as error:
            return _bad(f'path "{location}": {error.strerror}')
        return _parse(text, f'path "{location}"')


@lru_cache(maxsize=1024)
def _parse(text: bytes, where: str) -> JudgedKubeconfig | KubeconfigProblem:
    """Cached, since it is read with each heartbeat of a cluster and rarely changes."""
    try:
        parsed = yaml_text.load(text)
    except yaml.YAMLError:
        # The parser's message quotes the line, which may hold a token.
        return _bad(f"{where}: not YAML")
    problem = judge(parsed)
    if problem is not None:
        return KubeconfigProblem(problem.reason, f"{where}: {problem.detail}")
    return JudgedKubeconfig(kubeconfig=parsed, digest=hashlib.sha256(text).hexdigest())


def _bad(detail: str) -> KubeconfigProblem:
    return KubeconfigProblem(ClusterReason.BAD_KUBE_CONFIG, detail)
