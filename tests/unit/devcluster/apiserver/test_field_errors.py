# SPDX-License-Identifier: Apache-2.0
"""Causes of validation errors show the value that the client sent."""

from __future__ import annotations

from devcluster.apiserver import field_errors


def test_a_bad_annotation_key_is_shown_as_it_was_sent() -> None:
    """Annotation keys are checked in lower case."""
    (cause,) = field_errors.key_problems("metadata.annotations", "a b", shown="A b")
    assert cause.message.startswith('Invalid value: "A b": name part must consist of')


def test_supported_values_keep_their_order() -> None:
    cause = field_errors.not_supported("spec.mode", "c", ["b", "a"])
    assert cause.message == 'Unsupported value: "c": supported values: "b", "a"'
