# SPDX-License-Identifier: Apache-2.0
"""Ports are held by whoever took them, and never those that somebody listens on."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from devcluster.errors import DevclusterError
from devcluster.ports import LOOPBACK, PortRegistry


class Counting(random.Random):
    """Hands out the given numbers in turn, then the last one for ever."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self._numbers = list(numbers)

    def randint(self, a: int, b: int) -> int:
        return self._numbers.pop(0) if len(self._numbers) > 1 else self._numbers[0]


def test_two_registries_never_hold_the_same_port(tmp_path: Path) -> None:
    with (
        PortRegistry(folder=tmp_path, choice=Counting(20001)) as first,
        PortRegistry(folder=tmp_path, choice=Counting(20001, 20002)) as second,
    ):
        assert (first.take(), second.take()) == (20001, 20002)


def test_a_port_can_be_taken_again_once_it_was_given_back(tmp_path: Path) -> None:
    with PortRegistry(folder=tmp_path, choice=Counting(20003)) as first:
        first.release(first.take())
        with PortRegistry(folder=tmp_path, choice=Counting(20003)) as second:
            assert second.take() == 20003


def test_a_port_that_a_foreign_server_listens_on_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen()
        taken = server.getsockname()[1]
        with PortRegistry(folder=tmp_path, choice=Counting(taken, 20004)) as registry:
            assert registry.take() == 20004


def test_running_out_of_ports_is_an_error(tmp_path: Path) -> None:
    with PortRegistry(folder=tmp_path, choice=Counting(20005)) as registry:
        registry.take()
        with pytest.raises(DevclusterError, match="no free port"):
            registry.take()


def test_a_second_release_does_not_take_the_port_from_its_next_holder(tmp_path: Path) -> None:
    with PortRegistry(folder=tmp_path / "locks") as first, PortRegistry(folder=tmp_path / "locks") as second:
        file = tmp_path / "kept"
        port = first.take(kept_in=file)
        first.release(port)
        assert second.take(kept_in=file) == port
        first.release(port)
        assert first.take(kept_in=file) != port, "still held by the other registry"


def test_a_port_that_was_written_down_is_taken_again(tmp_path: Path) -> None:
    file = tmp_path / "cluster" / "port"
    with PortRegistry(folder=tmp_path / "locks") as ports:
        first = ports.take(kept_in=file)
    with PortRegistry(folder=tmp_path / "locks") as ports:
        assert ports.take(kept_in=file) == first


@pytest.mark.parametrize("content", ["", "x", "80", "99999", "9" * 5000])
def test_what_is_no_port_of_ours_in_the_file_is_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "port"
    file.write_text(content)
    with PortRegistry(folder=tmp_path / "locks") as ports:
        taken = ports.take(kept_in=file)
        assert file.read_text() == f"{taken}\n"


def test_a_port_that_is_held_by_another_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "port"
    with PortRegistry(folder=tmp_path / "locks") as ports, PortRegistry(folder=tmp_path / "locks") as others:
        first = ports.take(kept_in=file)
        assert others.take(kept_in=file) != first
