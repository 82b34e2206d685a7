# SPDX-License-Identifier: Apache-2.0
"""The file of `mkctl up --config`: the manager's Configuration, validated before anything starts.

It overrides the settings of a local federation, so the file needs only the fields that differ. Heavy imports are lazy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from multikueue.core.errors import BadInput

if TYPE_CHECKING:
    from multikueue.api.meta import JsonObject

_CHOSEN: Final = (
    ("metrics", "bindAddress"),
    ("health", "healthProbeBindAddress"),
    ("webhook", "host"),
    ("webhook", "port"),
)
"""Addresses that `mkctl up` sets, so that several federations can run on one machine."""


def read(path: Path) -> JsonObject:
    """The content of the file. Raises `BadInput` with the file and each invalid field."""
    import yaml

    from devcluster.federation.roles import manager_configuration
    from multikueue.api import configuration_file, yaml_text
    from multikueue.api.constants import DEFAULT_NAMESPACE
    from multikueue.dispatch.dispatchers.registry import dispatcher
    from multikueue.jobs.framework.registry import framework_problems

    found = configuration_file.load(path, namespace=DEFAULT_NAMESPACE, frameworks=framework_problems)
    where = f"configuration {path}"
    if found.namespace != DEFAULT_NAMESPACE:
        raise BadInput(
            f"{where}: namespace: must be {DEFAULT_NAMESPACE} in a local federation, found {found.namespace}; remove"
            " the field"
        )
    document: JsonObject = yaml_text.load(path.read_bytes()) or {}
    try:
        dispatcher(found.multikueue.dispatcher_name)
        configuration_file.load(yaml.safe_dump(manager_configuration(document)))
    except BadInput as error:
        raise BadInput(f"{where}: {str(error).removeprefix('configuration: ')}") from error
    return document


def unused(document: Mapping[str, object]) -> list[str]:
    """The fields of the file that have no effect in a local federation."""
    sections = [(names, document.get(names[0])) for names in _CHOSEN]
    return [".".join(names) for names, section in sections if isinstance(section, Mapping) and names[1] in section]
