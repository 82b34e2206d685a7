# SPDX-License-Identifier: Apache-2.0
"""Field ownership across applies and updates."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.patch import managers
from devcluster.apiserver.patch.managers import APPLY, UPDATE, ApplyConflict, FieldManager, Owned
from devcluster.apiserver.schema import builtin

KIND = builtin.node("io.k8s.api.core.v1.ConfigMap")
A, B = (FieldManager(name, APPLY, "v1") for name in "ab")
CURRENT: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "uid": "u"}}


def config(**data: str) -> dict[str, Any]:
    """An applied configuration."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o"}, "data": data}


def apply(
    live: dict[str, Any],
    wanted: dict[str, Any],
    owners: dict[FieldManager, Owned],
    by: FieldManager,
    *,
    force: bool = False,
) -> tuple[dict[str, Any], dict[FieldManager, Owned]]:
    """One apply at noon."""
    return managers.apply(live, wanted, kind=KIND, managers=owners, by=by, now="noon", force=force)


def test_an_apply_owns_the_applied_fields_only() -> None:
    value, owners = apply(CURRENT, config(x="1"), {}, A)
    assert value["data"] == {"x": "1"}
    assert owners == {A: Owned({"f:data": {"f:x": {}}}, "noon")}


def test_a_field_of_another_conflicts_unless_it_is_forced() -> None:
    value, owners = apply(CURRENT, config(x="1"), {}, A)
    with pytest.raises(ApplyConflict) as caught:
        apply(value, config(x="2"), owners, B)
    assert [(conflict.manager, conflict.path) for conflict in caught.value.conflicts] == [(A, ".data.x")]
    value, owners = apply(value, config(x="2"), owners, B, force=True)
    assert value["data"] == {"x": "2"}
    assert set(owners) == {B}


def test_a_shared_value_has_two_owners_and_stays_until_both_remove_it() -> None:
    value, owners = apply(CURRENT, config(x="1", y="1"), {}, A)
    value, owners = apply(value, config(x="1"), owners, B)
    value, owners = apply(value, config(y="1"), owners, A)
    assert value["data"] == {"x": "1", "y": "1"}
    nothing = {name: entry for name, entry in config().items() if name != "data"}
    value, owners = apply(value, nothing, owners, B)
    assert value["data"] == {"y": "1"}


def test_an_apply_that_changes_nothing_has_no_time() -> None:
    value, owners = apply(CURRENT, config(x="1"), {}, A)
    _, owners = apply(value, config(x="1"), owners, B)
    assert owners[B].time is None
    assert owners[A].time == "noon"


def test_an_update_takes_the_changed_fields_from_all_managers() -> None:
    value, owners = apply(CURRENT, config(x="1", y="1"), {}, A)
    new = {**value, "data": {"x": "2", "y": "1"}}
    by = FieldManager("u", UPDATE, "v1")
    owners = managers.update(value, new, kind=KIND, managers=owners, by=by, now="one")
    assert owners[A].fields == {"f:data": {"f:y": {}}}
    assert owners[by].fields == {"f:data": {"f:x": {}}}


def test_more_than_ten_update_entries_are_merged() -> None:
    owners: dict[FieldManager, Owned] = {}
    value = CURRENT
    for number in range(14):
        new = {**value, "data": {**value.get("data", {}), f"k{number:02}": "1"}}
        by = FieldManager(f"u{number:02}", UPDATE, "v1")
        owners = managers.update(value, new, kind=KIND, managers=owners, by=by, now=f"{number:02}")
        value = new
    assert len(owners) == 10
    assert any(manager.name == "ancient-changes" for manager in owners)


def test_an_apply_in_another_version_replaces_the_entry_of_the_last() -> None:
    old = A._replace(api_version="v1beta1")
    value, owners = apply(CURRENT, config(x="1", y="1"), {}, old)
    updater = FieldManager("a", UPDATE, "v1beta1")
    owners[updater] = Owned({"f:data": {"f:z": {}}}, "one")
    value, owners = apply(value, config(x="1"), owners, A)
    assert value["data"] == {"x": "1"}
    assert set(owners) == {A, updater}


def test_written_entries_are_read_again() -> None:
    _, owners = apply(CURRENT, config(x="1"), {}, A)
    written = managers.write(owners)
    assert managers.read(written) == owners
    assert managers.write(managers.read(written)) == written
