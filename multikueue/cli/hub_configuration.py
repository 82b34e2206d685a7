# SPDX-License-Identifier: Apache-2.0
"""The manager's Configuration, read from a file or from the ConfigMap on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from multikueue.api import configuration_file
from multikueue.api.configuration import Configuration
from multikueue.api.resource import CONFIG_MAPS
from multikueue.cli.hub_options import HubOptions
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient

_CONFIG_MAP: Final = "kueue-manager-config"
_CONFIG_KEY: Final = "controller_manager_config.yaml"


async def manager_configuration(hub: KubeClient, options: HubOptions, *, file: Path | None = None) -> Configuration:
    """The Configuration of `file`, else of the federation's file, else of the ConfigMap; defaults if there is none.

    Raises `BadInput` for an invalid Configuration and `KubeError` if the ConfigMap cannot be read.
    """
    source = file or options.configuration or await _config_map_text(hub, options.manager_namespace)
    return configuration_file.load(source, namespace=options.manager_namespace)


async def _config_map_text(hub: KubeClient, namespace: str) -> str:
    try:
        found = await hub.get_object(CONFIG_MAPS, _CONFIG_MAP, namespace=namespace)
    except NotFound:
        return ""
    return str((found.get("data") or {}).get(_CONFIG_KEY) or "")
