# SPDX-License-Identifier: Apache-2.0
"""Conversion of config.kueue.x-k8s.io/v1beta1 to v1beta2 (`docs/spec/kueue-api.md §6.1`).

In v1beta1 a switch `enable` turns fair sharing and waiting for pods on; in v1beta2 it is their presence. Settings
that no longer do anything are dropped here, so that they are not taken for unknown ones.
"""

from __future__ import annotations

from multikueue.api.meta import JsonObject


def upgrade(settings: JsonObject) -> JsonObject:
    """`settings` in v1beta2; the argument is not changed."""
    current = dict(settings)
    current.pop("queueVisibility", None)
    _integrations(current)
    _fair_sharing(current)
    _wait_for_pods_ready(current)
    return current


def _integrations(settings: JsonObject) -> None:
    integrations = settings.get("integrations")
    if not isinstance(integrations, dict) or "podOptions" not in integrations:
        return
    options = integrations["podOptions"]
    settings["integrations"] = {key: value for key, value in integrations.items() if key != "podOptions"}
    # The selector of v1beta2 is for all kinds what podOptions was for pods.
    selector = options.get("namespaceSelector") if isinstance(options, dict) else None
    if selector is not None:
        settings.setdefault("managedJobsNamespaceSelector", selector)


def _fair_sharing(settings: JsonObject) -> None:
    fair_sharing = settings.get("fairSharing")
    if not isinstance(fair_sharing, dict):
        return
    rest = {key: value for key, value in fair_sharing.items() if key != "enable"}
    if fair_sharing.get("enable", False):
        rest.setdefault("preemptionStrategies", ["LessThanOrEqualToFinalShare", "LessThanInitialShare"])
        settings["fairSharing"] = rest
    else:
        del settings["fairSharing"]


def _wait_for_pods_ready(settings: JsonObject) -> None:
    waiting = settings.get("waitForPodsReady")
    if not isinstance(waiting, dict) or not waiting.get("enable", False):
        # Off has to be explicit: v1beta2 waits by default.
        settings["waitForPodsReady"] = None
        return
    rest = {key: value for key, value in waiting.items() if key != "enable"}
    rest.setdefault("timeout", "5m")
    rest.setdefault("blockAdmission", True)
    settings["waitForPodsReady"] = rest
