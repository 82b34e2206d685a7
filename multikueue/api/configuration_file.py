# SPDX-License-Identifier: Apache-2.0
"""A Configuration read from its file (`docs/spec/kueue-api.md §6.1`).

An unknown field is an error with its path, like every other mistake, and all are reported at once. One of v1beta1 is
converted: there a switch `enable` turns fair sharing and waiting for pods on, in v1beta2 it is their presence. Settings
that no longer do anything are dropped here, so that they are not taken for unknown ones.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from multikueue.api import configuration_rules
from multikueue.api.codec import problem_lines, without_nulls
from multikueue.api.configuration import Configuration, FrameworkRule, managed_jobs_selector
from multikueue.api.constants import CONFIG_GROUP, DEFAULT_NAMESPACE
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput


def load(
    source: Path | str, *, namespace: str = DEFAULT_NAMESPACE, frameworks: FrameworkRule | None = None
) -> Configuration:
    """The configuration in a file (a `Path`) or in YAML text; empty text is all defaults.

    `namespace` is the default of that setting. `frameworks` returns the problems of the integrations, for a manager
    that supports fewer than there are. Raises `BadInput` naming file, path and problem.
    """
    if isinstance(source, Path):
        try:
            text = source.read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput(f"configuration {source}: cannot read it: {error.strerror or error}") from error
        return _read(text, origin=f"configuration {source}", namespace=namespace, frameworks=frameworks)
    return _read(source, origin="configuration", namespace=namespace, frameworks=frameworks)


def _read(text: str, *, origin: str, namespace: str, frameworks: FrameworkRule | None) -> Configuration:
    import yaml

    from multikueue.api import yaml_text

    try:
        document = yaml_text.load(text.encode(errors="replace"))
    except yaml.YAMLError as error:
        raise BadInput(f"{origin}: not YAML: {error}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BadInput(f"{origin}: expected a mapping of settings, got {type(document).__name__}")
    settings = _current(without_nulls(document), origin)
    settings.setdefault("namespace", namespace)
    try:
        configuration = Configuration.model_validate(settings)
    except ValidationError as error:
        raise BadInput("; ".join(f"{origin}: {line}" for line in problem_lines(error))) from error
    found = [*configuration_rules.unknown_fields(configuration), *configuration_rules.problems(configuration)]
    unsupported = frameworks(configuration.integrations) if frameworks is not None else ()
    if unsupported:  # these are all of them, so that none is left for the next try
        found = [each for each in found if not each[1].startswith("expected one of batch/job")]
        found += unsupported
    if found:
        raise BadInput("; ".join(f"{origin}: {path}: {problem}" for path, problem in found))
    return _completed(configuration)


def _current(document: JsonObject, origin: str) -> JsonObject:
    settings = dict(document)
    api_version = settings.pop("apiVersion", f"{CONFIG_GROUP}/v1beta2")
    kind = settings.pop("kind", "Configuration")
    if kind != "Configuration":
        raise BadInput(f"{origin}: kind: expected Configuration, got {kind!r}")
    if api_version == f"{CONFIG_GROUP}/v1beta1":
        return upgrade(settings)
    if api_version != f"{CONFIG_GROUP}/v1beta2":
        raise BadInput(f"{origin}: apiVersion: expected {CONFIG_GROUP}/v1beta2 or v1beta1, got {api_version!r}")
    return settings


def _completed(configuration: Configuration) -> Configuration:
    changes: dict[str, object] = {}
    if "managed_jobs_namespace_selector" not in configuration.model_fields_set:
        changes["managed_jobs_namespace_selector"] = managed_jobs_selector(configuration.namespace)
    if configuration.gate("DisableWaitForPodsReady"):
        changes["wait_for_pods_ready"] = None
    return configuration.model_copy(update=changes) if changes else configuration


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
