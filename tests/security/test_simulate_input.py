# SPDX-License-Identifier: Apache-2.0
"""`mkctl simulate` and `mkctl explain -f` refuse what a hub refuses, and survive every input.

One manifest for each rule of the webhooks: the webhook and `simulate` must both refuse it, with the same message. That
no rule is forgotten is checked against the code of `api.validation`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from manager.dispatch.transport import kubeconfigs
from manager.seals import Seals
from manager.webhooks.configurations import KUEUE_HOOKS, job_hooks
from manager.webhooks.handlers import Handlers
from manager.webhooks.review import AdmissionRequest, ReviewAnswer
from multikueue.api import configuration_file, yaml_text
from multikueue.api.configuration import Configuration
from multikueue.api.crds import definition
from multikueue.api.resource import KUEUE_RESOURCES
from multikueue.api.validation import errors, formats, job, metadata, queued_job, quota, workload
from multikueue.api.validation.quota import LENDS_BEYOND_NOMINAL
from multikueue.cli.inspect import explain, simulate
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.rest import credentials
from multikueue.simulation import manifests
from multikueue.simulation.admission import check_manifests
from tests.support.access import NobodyMay, NoKinds, nobody_owns
from tests.support.embedded import Caller, api_server
from tests.support.refused_manifests import GOOD, KUEUE, REFUSED, T0, UNFIT, Object, pods, reserved

OF_UPDATES = frozenset(
    {
        "_update",
        "update",
        "_priority_class",
        "_concurrent_admission",
        "_reclaimable_grows",
        "_admission_kept",
        "_checks_frozen",
        "_cluster_nominated",
        "elastic_kept",
    }
)
"""Functions whose rules are about a change: manifests have nothing before them."""
KINDS_OF_ERRORS = frozenset(["invalid", "required", "duplicate", "forbidden", "not_supported", "not_found", "too_many"])


class Namespaces:
    """Every namespace is managed."""

    def manages(self, name: str) -> bool:
        return True

    def queue_of(self, name: str) -> str:
        return ""


class Nothing:
    """Caches of an empty cluster."""

    def view(self, resource: Any) -> Any:
        return self

    def object(self, key: Any) -> None:
        return None


HANDLERS = Handlers(
    configuration=Configuration(),
    caches=Nothing(),  # type: ignore[arg-type]
    registry=JobRegistry(("batch/job",)),
    namespaces=Namespaces(),  # type: ignore[arg-type]
    jobs=True,
    seals=Seals.drawn(ManualClock()),
    access=NobodyMay(),
    owners=nobody_owns(),
    kinds=NoKinds(),
).by_path()
PATHS = {
    hook.resource.kind: hook.path
    for hook in (*KUEUE_HOOKS, *job_hooks(JobRegistry(("batch/job",))))
    if not hook.mutates
}


def webhook(obj: Object) -> list[str]:
    """Why the webhook refuses an object."""
    _, handler = HANDLERS[PATHS[obj["kind"]]]
    namespace = obj["metadata"].get("namespace", "")
    request = AdmissionRequest(uid="u", operation="CREATE", namespace=namespace, name="x", object=deepcopy(obj))
    answer = handler(request)
    assert isinstance(answer, ReviewAnswer), "it is answered without waiting"
    return list(answer.refusals)


def taken(*objects: Object) -> Any:
    text = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return check_manifests(manifests.parse(text, source="m.json"))


def plain(reasons: list[str], obj: Object) -> list[str]:
    """Without the name of the object, which precedes what cannot be read."""
    namespace = obj["metadata"].get("namespace")
    named = f"{obj['kind']} {namespace + '/' if namespace else ''}x: "
    return [reason.replace(named, "")[:1000] for reason in reasons]


@pytest.mark.parametrize("obj", REFUSED.values(), ids=REFUSED.keys())
def test_what_a_webhook_refuses_is_refused_with_the_same_message(obj: Object) -> None:
    refused = webhook(obj)
    assert refused, "the webhook takes it"
    found = taken(obj)
    tolerated = all(reason.endswith(LENDS_BEYOND_NOMINAL) for reason in refused)
    assert len(found.manifests) == tolerated
    (unusable,) = found.warnings if tolerated else found.unusable
    assert list(unusable.reasons) == plain(refused, obj)
    assert unusable.place.startswith(f"m.json items[0]: {obj['kind']} ")


@pytest.mark.anyio
@pytest.mark.parametrize("obj", UNFIT.values(), ids=UNFIT.keys())
async def test_what_a_schema_refuses_is_refused_with_the_message_of_an_api_server(
    obj: Object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = next(each for each in KUEUE_RESOURCES if each.kind == obj["kind"])
    server = Caller(api_server())
    await server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(resource))
    if resource.namespaced:
        await server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    answer = await server.create(resource.path(obj["metadata"].get("namespace")), obj)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    causes = [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]
    file = tmp_path / "m.json"
    file.write_bytes(orjson.dumps(obj))
    assert simulate.main(["-f", str(file), "-o", "json"]) == 1
    out, err = capsys.readouterr()
    ((refused),) = orjson.loads(out)["refused"]
    said = {(field.strip(), text.strip()) for field, _, text in (each.partition(": ") for each in refused["reasons"])}
    assert said == {cause for cause in causes if cause[0] != "<nil>"}
    assert f"{obj['kind']} " in err


def test_no_rule_of_the_webhooks_is_without_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = (job, queued_job, quota, workload, metadata, formats)
    reached: set[tuple[str, int]] = set()

    def noting(make: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any, **named: Any) -> Any:
            caller = sys._getframe(1)
            reached.add((caller.f_globals["__name__"], caller.f_lineno))
            return make(*arguments, **named)

        return note

    for module in modules:
        for name in KINDS_OF_ERRORS & vars(module).keys():
            monkeypatch.setattr(module, name, noting(getattr(errors, name)))
    for obj in REFUSED.values():
        webhook(obj)
    missing = [
        f"{module.__name__} {function}"
        for module in modules
        for function, first, last in _rules(module)
        if function not in OF_UPDATES and not any((module.__name__, line) in reached for line in range(first, last + 1))
    ]
    assert missing == ["multikueue.api.validation.formats admission_gates"], "a rule without a manifest in REFUSED"


def _rules(module: Any) -> Iterator[tuple[str, int, int]]:
    """The function and the lines of each place where an error is made."""
    for function in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(function, ast.FunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS_OF_ERRORS:
                    yield function.name, call.lineno, call.end_lineno or call.lineno


def run(
    command: Callable[[list[str]], int], file: Path, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, list[str]]:
    code = command([*arguments, "-f", str(file)])
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def test_the_rest_is_simulated_and_the_exit_status_says_that_it_is_a_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    bad = REFUSED["a quota below nothing"]
    file.write_text(f"{yaml.safe_dump_all([*GOOD[:2], bad, *GOOD[2:]])}---\nkind: [\n---\n- 1\n")
    code, out, lines = run(simulate.main, file, capsys, "-o", "json")
    document = orjson.loads(out)
    assert code == 1
    decided = [each["outcome"] for cycle in document["cycles"] for each in cycle["decisions"]]
    assert decided == ["Reserved"]
    assert len(lines) == len(document["refused"]) == 3
    place = next(each["object"] for each in document["refused"] if "ClusterQueue" in each["object"])
    assert place.startswith(f"{file}:")
    assert place.endswith(": ClusterQueue x")
    assert any("spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value" in line for line in lines)


def test_explain_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.yaml"
    held = pods(name="held") | {"metadata": {"name": "held", "namespace": "team"}}
    file.write_text(yaml.safe_dump_all([*GOOD, held, REFUSED["a queue that is no name"]]))
    code, out, lines = run(explain.main, file, capsys, "workload", "team/held")
    assert (code, len(lines)) == (1, 1)
    assert out.startswith("workload/team/held: ")
    assert "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value" in lines[0]


def test_unused_kinds_are_counted_and_change_no_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "t"}}
    queued = {"kueue.x-k8s.io/queue-name": "lq"}
    own = {"apiVersion": "example.com/v1", "kind": "Training", "metadata": {"name": "t", "labels": queued}}
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in "ab"]
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump_all([*GOOD, torch, own, *maps]))
    code, _, lines = run(simulate.main, file, capsys)
    no_workload = "no integration supports this kind of job, so no Workload is created for it"
    assert code == 0
    assert lines == [
        f"mkctl simulate: left out: 1 example.com/v1 Training: {no_workload}",
        "mkctl simulate: left out: 1 kubeflow.org/v1 PyTorchJob: not queued, so no Workload is created for it",
        "mkctl simulate: left out: 2 v1 ConfigMap: the engine does not use this kind",
    ]


LAUGHS = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MERGES = "a: &a0 {x: 1}\n" + "".join(f"b{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10))
BEYOND = {
    "aliases that stand for a billion values": (LAUGHS, "aliases expand to more than"),
    "merges that stand for a billion values": (MERGES, "aliases expand to more than"),
    "an alias inside of itself": ("a: &a [*a]", "is inside its own anchor"),
    "100,000 lists in each other": ("[" * 100_000, "nested deeper than 100 levels"),
    "100,000 objects in each other": ("{a: " * 100_000, "nested deeper than 100 levels"),
    "100,000 lists on one line": ("- " * 100_000 + "x", "nested deeper than 100 levels"),
    "JSON that is 100,000 deep": ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested deeper than 100 levels"),
    "an alias that is deep": (
        f"a: &a {'[' * 90}{']' * 90}\nb: {'[' * 20}*a{']' * 20}",
        "nested deeper than 100 levels",
    ),
    "a number of 10,000 digits": (f"a: {'9' * 10_000}", "a number of 10000 digits"),
    "a number in base 60": (f"a: 1{':1' * 10_000}", "digits"),
    "no number": ("a: .nan", "a number that JSON has not"),
    "half a character": ('a: "\\ud800"', "invalid Unicode character escape"),
    "bytes": ("a: !!binary aGVsbG8=", "could not determine a constructor"),
    "a set": ("a: !!set {x}", "could not determine a constructor"),
    "a boolean that is none": ("a: !!bool x", "not YAML"),
    "a number that is none": ("a: !!int x", "not a number"),
    "a program": ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    "bytes that are no text": ("a: \udcff", "not YAML"),
}


@pytest.mark.parametrize(("text", "problem"), BEYOND.values(), ids=BEYOND.keys())
def test_yaml_beyond_the_bounds_is_one_line(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    good = yaml.safe_dump_all(GOOD)
    file.write_bytes(f"{good}---\n".encode() + text.encode(errors="surrogateescape"))
    code, out, lines = run(simulate.main, file, capsys, "-o", "json")
    assert (code, len(lines)) == (1, 1)
    assert problem in lines[0]
    assert len(orjson.loads(out)["cycles"]) == 1


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b"- " * 100_000, LAUGHS.encode(), b"\xff\xfe\xff", b"a: !!int x"],
    ids=["deep lists", "deep blocks", "many aliases", "bytes", "a wrong tag"],
)
def test_a_kubeconfig_and_a_configuration_are_read_within_the_same_bounds(text: bytes) -> None:
    with pytest.raises(BadInput, match="not YAML"):
        credentials.parse(text, source="Secret")
    found = kubeconfigs._parse(text, "Secret")
    assert isinstance(found, KubeconfigProblem)
    with pytest.raises(BadInput):
        configuration_file.load(text.decode(errors="replace"))


def test_a_text_that_is_too_long_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_text, "MAX_BYTES", 1000)
    file = tmp_path / "m.yaml"
    file.write_text(f"{yaml.safe_dump(GOOD[0])}---\na: {'x' * 2000}\n")
    code, _, lines = run(simulate.main, file, capsys)
    assert (code, len(lines)) == (1, 1)
    assert "at most 1000 are read" in lines[0]


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    text = b"kind: X\napiVersion: v1\nmetadata: {name: a}\ndata: {7: x, true: y, null: z, 2026-01-01: 1.5}\n"
    (found,) = manifests.parse(text, source="x").found
    assert found.obj["data"] == {"7": "x", "true": "y", "null": "z", "2026-01-01": 1.5}


KINDS = [
    (KUEUE, "ClusterQueue"),
    ("kueue.x-k8s.io/v1beta1", "ClusterQueue"),
    (KUEUE, "LocalQueue"),
    (KUEUE, "Cohort"),
    (KUEUE, "ResourceFlavor"),
    (KUEUE, "AdmissionCheck"),
    (KUEUE, "Workload"),
    ("kueue.x-k8s.io/v1beta1", "Workload"),
    (KUEUE, "WorkloadPriorityClass"),
    ("batch/v1", "Job"),
    ("v1", "Namespace"),
    ("v1", "LimitRange"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("v1", "List"),
    (KUEUE, "WorkloadList"),
]
FIELDS = """
    name namespace labels annotations spec status metadata podSets count minCount template containers resources requests
    limits cpu memory nominalQuota borrowingLimit lendingLimit flavors coveredResources resourceGroups cohortName
    parentName clusterQueue queueName priority priorityClassRef conditions type reason message lastTransitionTime
    admission podSetAssignments resourceUsage admissionChecks state items parallelism completions suspend
    namespaceSelector matchLabels matchExpressions key operator values value effect ownerReferences finalizers
    creationTimestamp generateName uid stopPolicy preemption fairSharing weight reclaimablePods requeueState active
    nodeLabels nodeTaints tolerations overhead podFixed max min default
"""
WORDS = sorted(FIELDS.split())
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["", "1", "-1", "1Gi", "9" * 400, "1e999999999", T0, "0001-01-01T00:00:00Z", "²", "True", "x"]),
    st.sampled_from(WORDS),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=25,
)
METADATA: st.SearchStrategy[Any] = VALUES | st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "lq", "cq"]) | SCALARS},
    optional={"namespace": st.sampled_from(["team"]) | SCALARS, "labels": VALUES, "annotations": VALUES},
)


@st.composite
def objects(draw: st.DrawFn) -> Object:
    version, kind = draw(st.sampled_from(KINDS))
    found = draw(
        st.fixed_dictionaries({}, optional={"metadata": METADATA, "spec": VALUES, "status": VALUES, "items": VALUES})
    )
    return {"apiVersion": version, "kind": kind, **found}


@st.composite
def mutated(draw: st.DrawFn) -> Object:
    """A good object with something else at one place."""
    obj: Object = deepcopy(draw(st.sampled_from([*GOOD, pods(), reserved({"name": "set0", "flavors": {"cpu": "f"}})])))
    part: Any = obj
    while True:
        if isinstance(part, list) and part:
            position: Any = draw(st.integers(0, len(part) - 1))
        elif isinstance(part, dict) and part:
            position = draw(st.sampled_from(sorted(part)))
        else:
            return obj
        if not isinstance(part[position], dict | list) or draw(st.booleans()):
            if position not in ("apiVersion", "kind"):
                part[position] = draw(VALUES)
            return obj
        part = part[position]


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@example(given_objects=[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": 1}}])
@given(given_objects=st.lists(objects() | mutated(), min_size=1, max_size=6))
def test_any_structure_of_a_known_kind_is_simulated_or_refused(
    given_objects: list[Object], tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "m.yaml"
    file.write_text(yaml.safe_dump_all([*GOOD, *given_objects]), encoding="utf-8", errors="surrogatepass")
    for command, arguments in ((simulate.main, ["-o", "json"]), (explain.main, ["workload", "team/x"])):
        code, _, lines = run(command, file, capsys, *arguments)
        assert code in (0, 1, 2)
        assert all(line.startswith(("mkctl ", "  ")) for line in lines)
        assert not [line for line in lines if "Traceback" in line]


@settings(deadline=None, max_examples=300)
@given(text=st.binary(max_size=200) | st.text(max_size=200, alphabet="[]{}-:,&*!|>'\"#%@ \n\tab1<").map(str.encode))
def test_any_text_is_read_or_refused(text: bytes) -> None:
    given = manifests.parse(text, source="x")
    assert all(each.reasons for each in given.unusable)
