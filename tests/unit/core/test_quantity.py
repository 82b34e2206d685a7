# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.core.quantity import Format, Quantity, QuantityError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("1", "1", id="a whole number stays"),
        pytest.param("1500m", "1500m", id="a part of a core stays in milli"),
        pytest.param("1.5", "1500m", id="a decimal fraction becomes milli"),
        pytest.param("1000", "1k", id="a thousand takes its suffix"),
        pytest.param("2500", "2500", id="no suffix where it would not be whole"),
        pytest.param("1000000", "1M", id="the largest exact suffix wins"),
        pytest.param("1.5Gi", "1536Mi", id="a binary fraction gets the next smaller suffix"),
        pytest.param("1536Ki", "1536Ki", id="a binary amount that is no whole Mi"),
        pytest.param("512", "512", id="below 1024 there is no binary form"),
        pytest.param("2.9296875Ki", "3000", id="a binary amount that is no whole Ki has no suffix"),
        pytest.param("0.5Ki", "512", id="half a kibi prints as decimal"),
        pytest.param("0.5m", "500u", id="finer than milli is micro"),
        pytest.param("1e3", "1e3", id="an exponent stays an exponent"),
        pytest.param("1E6", "1e6", id="a large E before digits is an exponent"),
        pytest.param("2E", "2E", id="a large E alone is exa"),
        pytest.param("0.0000000001", "1n", id="finer than nano rounds up"),
        pytest.param("-1.5", "-1500m", id="a negative amount keeps its sign"),
        pytest.param("+3", "3", id="a plus sign is dropped"),
        pytest.param(".5", "500m", id="a number may begin with its point"),
        pytest.param("0Gi", "0", id="zero has no suffix"),
    ],
)
def test_canonical_text(text: str, want: str) -> None:
    assert str(Quantity.parse(text)) == want


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "1 Gi", "Ki", "--1", "1e", "1ki", "1e99999999"])
def test_what_is_no_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match=r"quantity|exponent"):
        Quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "units", "milli"),
    [
        pytest.param("0.5m", 1, 1, id="half a milli rounds up to one"),
        pytest.param("1500m", 2, 1500, id="one and a half units round up to two"),
        pytest.param("-1500m", -1, -1500, id="rounding goes towards positive infinity"),
        pytest.param("2Gi", 2**31, 2**31 * 1000, id="binary units are exact"),
    ],
)
def test_rounding_up(text: str, units: int, milli: int) -> None:
    assert (Quantity.parse(text).ceil(), Quantity.parse(text).milli_ceil()) == (units, milli)


def test_equal_amounts_are_equal_and_hash_alike_whatever_they_were_written_as() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024") == Quantity.parse("1.024k")
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024")}) == 1
    assert Quantity.parse("999m") < Quantity.parse("1")


def test_a_sum_keeps_the_format_of_its_first_term_that_is_not_zero() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1Gi")) == "2Gi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(3 * Quantity.parse("500m") - Quantity.parse("1")) == "500m"
    assert str(Quantity.parse("3").times(Quantity.parse("1.5Gi"))) == "4831838208"


@given(nano=st.integers(-(10**30), 10**30), format=st.sampled_from(Format))
def test_what_is_printed_parses_to_the_same_amount(nano: int, format: Format) -> None:
    quantity = Quantity(nano, format)
    assert Quantity.parse(str(quantity)) == quantity
