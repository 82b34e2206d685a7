# SPDX-License-Identifier: Apache-2.0
"""What `kubectl explain` shows for each field of our kinds, one module per API group.

One line per field, by the name of its model and its name in the API. They are apart from the models since only the
CustomResourceDefinitions need them; a test checks that no field is without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.api.field_descriptions import kueue, own, shared

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {**shared.FIELDS, **kueue.FIELDS, **own.FIELDS}


def of_field(model: str, field: str) -> str:
    """The line of a field; empty if there is none."""
    return FIELDS.get(model, {}).get(field, "")
