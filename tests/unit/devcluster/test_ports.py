# SPDX-License-Identifier: Apache-2.0
"""Ports are held by whoever took them, and never those that somebody listens on."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from multikueue.devcluster.errors import DevclusterError
from multikueue.devcluster.ports import LOOPBACK, PortRegistry


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
        first.give_back(first.take())
        with PortRegistry(folder=tmp_path, choice=Counting(20003)) as second:
            assert second.take() == 20003


def test_a_port_that_a_foreign_server_listens_on_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen()
        taken = server.getsockname()[1]
        with PortRegistry(folder=tmp_path, choice=Counting(taken, 20004)) as registry:
            assert registry.take() == 20004


def test_running_out_of_ports_says_so(tmp_path: Path) -> None:
    with PortRegistry(folder=tmp_path, choice=Counting(20005)) as registry:
        registry.take()
        with pytest.raises(DevclusterError, match="no free port"):
            registry.take()


def test_giving_back_twice_is_harmless(tmp_path: Path) -> None:
    with PortRegistry(folder=tmp_path, choice=Counting(20006)) as registry:
        port = registry.take()
        registry.give_back(port)
        registry.give_back(port)
