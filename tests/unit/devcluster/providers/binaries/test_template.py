# SPDX-License-Identifier: Apache-2.0
"""What a new cluster takes over from the storage of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from devcluster.providers.binaries import template
from devcluster.providers.binaries.template import Templates, with_new_uids

pytestmark = pytest.mark.anyio

FIRST = b"11111111-1111-4111-8111-111111111111"
SECOND = b"22222222-2222-4222-8222-222222222222"
BINARIES = Path("/binaries")


class MemoryStorage:
    """What etcd has under one prefix."""

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        self.entries = entries or {}

    async def is_empty(self) -> bool:
        return not self.entries

    async def read(self) -> Mapping[bytes, bytes]:
        return self.entries

    async def write(self, entries: Mapping[bytes, bytes]) -> None:
        self.entries.update(entries)


def test_a_uid_is_replaced_by_the_same_one_in_all_entries() -> None:
    made = (b"%08d-0000-4000-8000-000000000000" % number for number in count())
    entries = {b"a": b"uid " + FIRST, b"b": b"owner " + FIRST + b" uid " + SECOND}
    new = with_new_uids(entries, keep=b"", make=lambda: next(made))
    assert new == {
        b"a": b"uid 00000000-0000-4000-8000-000000000000",
        b"b": b"owner 00000000-0000-4000-8000-000000000000 uid 00000001-0000-4000-8000-000000000000",
    }


def test_a_uid_that_was_written_stays() -> None:
    entries = {b"a": b"default " + FIRST}
    assert with_new_uids(entries, keep=b'{"default":"' + FIRST + b'"}') == entries


async def test_a_second_cluster_begins_with_what_the_first_one_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_SAVED", {})
    templates = Templates()
    first, second = MemoryStorage(), MemoryStorage()
    async with templates.of([], first, binaries=BINARIES).filled() as filled:
        assert not filled
        first.entries = {b"namespaces/kube-system": b"ns " + FIRST, b"leases/kube-system/apiserver-x": b"lease"}
    async with templates.of([], second, binaries=BINARIES).filled() as filled:
        assert filled
        assert list(second.entries) == [b"namespaces/kube-system"], "what the server writes of itself is left out"
        assert second.entries[b"namespaces/kube-system"] != first.entries[b"namespaces/kube-system"]


async def test_a_cluster_with_data_neither_gets_a_template_nor_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_SAVED", {})
    templates = Templates()
    used, new = MemoryStorage({b"secrets/default/mine": b"x"}), MemoryStorage()
    async with templates.of([], used, binaries=BINARIES).filled() as filled:
        assert not filled
    async with templates.of([], new, binaries=BINARIES).filled() as filled:
        assert not filled


async def test_other_definitions_are_another_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_SAVED", {})
    templates = Templates()
    async with templates.of([], MemoryStorage(), binaries=BINARIES).filled():
        pass
    definition = {"kind": "CustomResourceDefinition", "metadata": {"name": "a"}}
    async with templates.of([definition], MemoryStorage(), binaries=BINARIES).filled() as filled:
        assert not filled


async def test_a_cluster_that_fails_to_start_is_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_SAVED", {})
    templates = Templates()
    with pytest.raises(ValueError, match="no start"):
        async with templates.of([], MemoryStorage(), binaries=BINARIES).filled():
            raise ValueError("no start")
    async with templates.of([], MemoryStorage(), binaries=BINARIES).filled() as filled:
        assert not filled
