# SPDX-License-Identifier: Apache-2.0
"""Quantities inside of objects, which the server stores in their canonical form."""

from __future__ import annotations

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from multikueue.core.quantity import Quantity, QuantityError


def canonical(amount: JsonValue) -> JsonValue:
    """A quantity in canonical form; an invalid one is unchanged."""
    try:
        return str(Quantity.parse(amount)) if isinstance(amount, str | int | float) else amount
    except QuantityError:
        return amount


def settle_fields(value: JsonObject, *fields: str) -> None:
    """Make quantities in these fields canonical, in place."""
    for field in fields:
        if value.get(field) is not None:
            value[field] = canonical(value[field])


def settle_amounts(value: JsonObject, *fields: str) -> None:
    """Make all quantities in these maps canonical, in place."""
    for field in fields:
        amounts = documents.child(value, field)
        for name, amount in amounts.items():
            amounts[name] = canonical(amount)


def settle_resources(value: JsonObject) -> None:
    """Make the requests and limits of `resources` canonical, in place."""
    settle_amounts(documents.child(value, "resources"), "limits", "requests")
