# SPDX-License-Identifier: Apache-2.0
"""The metrics of a manager as lines that can be compared: what was counted, and which histograms have samples."""

from __future__ import annotations

from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from multikueue.kube.rest.client import KubeClient
from tests.comparison.reader import reader_token

_OF_KUEUE: Final = "kueue_"
_NOT_COUNTED: Final = ("_bucket", "_sum", "_created")


async def metrics_token(client: KubeClient) -> str:
    """The token of a service account that may read metrics, which Kueue's manager asks for."""
    return await reader_token(client, [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])


async def measured(url: str, token: str) -> list[str]:
    """The samples of Kueue's metrics."""
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as answer:
        answer.raise_for_status()
        return lines(await answer.text())


def lines(text: str) -> list[str]:
    """Counts and amounts by name and labels; of a histogram how many samples it has."""
    found = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_OF_KUEUE) and not sample.name.endswith(_NOT_COUNTED):
                labels = ", ".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found.append(f"{family.type} {sample.name}{{{labels}}} {sample.value:g}")
    return sorted(found)
