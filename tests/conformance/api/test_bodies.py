# SPDX-License-Identifier: Apache-2.0
"""What is sent: bodies, their forms and their options, paths and methods; and what is answered when it is wrong."""

from __future__ import annotations

import pytest

from tests.conformance.api.subjects import JOBS, MAPS, NAMESPACES, config_map, delete, get, job, post, put
from tests.conformance.api.widgets import GADGETS, WIDGETS, widget
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange

pytestmark = pytest.mark.binaries

CASES = Cases("bodies")
_APPLY = "application/apply-patch+yaml"

for mode in ("Strict", "Warn", "Ignore", ""):
    query = f"?fieldValidation={mode}" if mode else ""
    CASES.exchanges(
        f"unknown fields of a built-in kind with fieldValidation {mode or 'left out'}",
        post(MAPS + query, config_map(color="red")),
        post(MAPS + query, config_map("b", metadata={"name": "b", "colour": "x"}, color="red", kindness=3)),
        post(JOBS + query, {**job(), "spec": {**job()["spec"], "speed": 3, "template": {"spac": {}}}}),
        post(
            JOBS + query,
            job("k", template={"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "imago": "x"}]}}),
        ),
        get(MAPS),
    )
    CASES.exchanges(
        f"unknown fields of a custom kind with fieldValidation {mode or 'left out'}",
        post(WIDGETS + query, widget("a", {"size": 1, "zeal": 2, "deep": {"inner": {"z": 1}}, "parts": []})),
        post(WIDGETS + query, widget("b", {"parts": [{"name": "n", "what": 1}], "free": {"any": {"thing": 1}}})),
        post(WIDGETS + query, widget("c", extra=1)),
        post(WIDGETS + query, widget(metadata={"name": "d", "colour": "x"})),
        get(WIDGETS),
    )
    CASES.exchanges(
        f"doubled fields with fieldValidation {mode or 'left out'}",
        post(MAPS + query, b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"1","a":"2"}}'),
        post(
            MAPS + query,
            b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","name":"c"},"data":{"a":"1"},"data":{}}',
        ),
        post(
            WIDGETS + query,
            b'{"kind":"Widget","apiVersion":"conformance.test/v1","metadata":{"name":"a"},'
            b'"spec":{"size":1,"size":2,"labels":{"x":"1","x":"2"}}}',
        ),
        post(
            JOBS + query,
            b'{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"j","labels":{"a":"1","a":"2"},"odd":1},"spec":'
            b'{"speed":1,"parallelism":1,"parallelism":2,"template":{"spac":{},"spec":{"restartPolicy":"Never",'
            b'"containers":[{"name":"c","imago":"x","image":"i","image":"i"}],"odd":1,"odd":2}},"zeal":1}}',
        ),
        post(
            MAPS + query,
            b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: z}\ndata:\n  a: '1'\n  a: '2'\n",
            content_type="application/yaml",
        ),
    )
    CASES.exchanges(
        f"doubled fields that are applied with fieldValidation {mode or 'left out'}",
        *(
            Exchange("PATCH", f"{place}?fieldManager=m{query.replace('?', '&')}", body, content_type=_APPLY)
            for place, body in (
                (f"{MAPS}/z", b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: z}\ndata:\n  a: '1'\n  a: '2'\n"),
                (
                    f"{MAPS}/y",
                    b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"y"},"data":{"a":"1","a":"2"}}',
                ),
                (
                    f"{WIDGETS}/x",
                    b"kind: Widget\napiVersion: conformance.test/v1\nmetadata: {name: x}\nspec:\n  size: 1\n  zeal: 2\n"
                    b"  size: 2\n  size: 3\n",
                ),
                (f"{MAPS}/w", b"kind: Secret\napiVersion: v1\nmetadata: {name: w}\nkind: Secret\n"),
            )
        ),
    )
    CASES.exchanges(
        f"patches that bring unknown fields with fieldValidation {mode or 'left out'}",
        post(MAPS, config_map()),
        post(WIDGETS, widget(spec={"size": 1})),
        *(
            Exchange("PATCH", path + query, body, content_type=f"application/{kind}+json")
            for path, body, kind in (
                (f"{MAPS}/a", {"colour": 1}, "merge-patch"),
                (f"{MAPS}/a", {"colour": 1, "data": {"a": "b"}}, "strategic-merge-patch"),
                (f"{MAPS}/a", [{"op": "add", "path": "/colour", "value": 1}], "json-patch"),
                (f"{WIDGETS}/w", {"spec": {"zeal": 1}}, "merge-patch"),
                (f"{WIDGETS}/w", [{"op": "add", "path": "/spec/zeal", "value": 1}], "json-patch"),
            )
        ),
    )
CASES.exchanges(
    "an unknown field validation is refused",
    post(f"{MAPS}?fieldValidation=strict", config_map()),
    post(f"{MAPS}?fieldValidation=Never", config_map()),
    put(f"{MAPS}/a?fieldValidation=Never", config_map()),
    Exchange("PATCH", f"{MAPS}/a?fieldValidation=Never", {}, content_type="application/merge-patch+json"),
    post(f"{WIDGETS}?fieldValidation=Never", widget()),
)
CASES.exchanges(
    "what is no JSON is refused",
    post(MAPS, b"{"),
    post(MAPS, b""),
    post(MAPS, b"null"),
    post(MAPS, b"[]"),
    post(MAPS, b"3"),
    post(MAPS, b'"text"'),
    post(MAPS, b"hello"),
    post(MAPS, b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}} trailing'),
    post(MAPS, b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},}'),
    post(MAPS, b'{"kind":"ConfigMap","apiVersion":"v1","metadata":[]}'),
    post(MAPS, b'{"kind":3,"apiVersion":"v1","metadata":{}}'),
)
CASES.exchanges(
    "what is no JSON is refused for custom kinds",
    post(WIDGETS, b"{"),
    post(WIDGETS, b""),
    post(WIDGETS, b"null"),
    post(WIDGETS, b"[]"),
    post(WIDGETS, b"hello"),
    post(WIDGETS, b'{"kind":"Widget","apiVersion":"conformance.test/v1","metadata":[]}'),
    post(WIDGETS, b'{"kind":"Widget","apiVersion":"conformance.test/v1","metadata":{"name":3}}'),
    post(WIDGETS, b'{"kind":"Widget","apiVersion":"conformance.test/v1","metadata":{"labels":{"a":1}}}'),
)
CASES.exchanges(
    "a value of a wrong type is refused",
    post(MAPS, config_map(data={"k": 1})),
    post(MAPS, config_map(data=["k"])),
    post(MAPS, config_map(data="k")),
    post(MAPS, config_map(immutable="yes")),
    post(MAPS, config_map(metadata={"name": 1})),
    post(MAPS, config_map(metadata={"name": "a", "labels": {"a": 1}})),
    post(MAPS, config_map(metadata={"name": "a", "labels": ["a"]})),
    post(MAPS, config_map(metadata={"name": "a", "finalizers": "x"})),
    post(MAPS, config_map(metadata={"name": "a", "ownerReferences": [{"uid": 3}]})),
    post(MAPS, config_map(binaryData={"k": "no base64!"})),
    post(MAPS, config_map(binaryData={"k": 5})),
    post(JOBS, job(parallelism="3")),
    post(JOBS, job(parallelism=1.5)),
    post(JOBS, job(parallelism=99999999999)),
    post(JOBS, job(suspend="yes")),
    post(JOBS, job(template={"spec": {"containers": {}}})),
    post(JOBS, job(template={"spec": {"containers": [3]}})),
    post(JOBS, job(template=[])),
    post(JOBS, {**job(), "spec": []}),
    post(JOBS, {**job(), "metadata": {"name": "j", "creationTimestamp": "yesterday"}}),
)
CASES.exchanges(
    "YAML is read as JSON is",
    post(
        MAPS, b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: z\ndata:\n  a: b\n", content_type="application/yaml"
    ),
    post(
        WIDGETS,
        b"apiVersion: conformance.test/v1\nkind: Widget\nmetadata:\n  name: z\nspec:\n  size: 3\n",
        content_type="application/yaml",
    ),
    post(MAPS, b"a: b: c", content_type="application/yaml"),
    post(MAPS, b"\tx", content_type="application/yaml"),
    post(MAPS, b"- a\n- b\n", content_type="application/yaml"),
)
CASES.exchanges(
    "an unknown path is not found",
    get("/api/v1/nothings"),
    get("/api/v1/namespaces/{ns}/nothings"),
    get("/api/v1/namespaces/{ns}/nothings/a"),
    get("/api/v2/configmaps"),
    get("/apis/nothing.test/v1/things"),
    get("/apis/batch/v9/jobs"),
    get("/apis/batch/v1/nothings"),
    get("/apis/conformance.test/v1/nothings"),
    get("/apis/conformance.test/v9/widgets"),
    get("/apis/nothing.test"),
    get("/apis/nothing.test/v1"),
    get("/nothing"),
    get(f"{MAPS}/a/status"),
    get(f"{MAPS}/a/nothing"),
    get(f"{WIDGETS}/w/scale"),
    get(f"{WIDGETS}/w/nothing"),
    get(f"{GADGETS}/g/status"),
    post("/api/v1/nothings", {}),
    get("/api/v1/namespaces/{ns}/nodes"),
    get("/apis/conformance.test/v1/namespaces/{ns}/gadgets"),
)
CASES.exchanges(
    "a method that a resource does not have is refused",
    post(f"{MAPS}/a", config_map()),
    put(MAPS, config_map()),
    Exchange("PATCH", MAPS, {}, content_type="application/merge-patch+json"),
    post("/api/v1/configmaps", config_map()),
    delete("/api/v1/configmaps"),
    delete(NAMESPACES),
    Exchange("TRACE", MAPS),
    Exchange("BREW", MAPS),
    post(f"{WIDGETS}/w", widget()),
    put(WIDGETS, widget()),
    post("/apis/conformance.test/v1/widgets", widget()),
    delete("/apis/conformance.test/v1/widgets"),
    delete(f"{WIDGETS}/w/status"),
    post(f"{WIDGETS}/w/status", widget()),
    delete(f"{JOBS}/j/status"),
    post(f"{JOBS}/j/status", job()),
    get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    put("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/a", {}),
)
CASES.exchanges(
    "an unknown media type is not acceptable",
    get(MAPS, accept="application/json;as=Nothing;g=meta.k8s.io;v=v1"),
    get(MAPS, accept="application/xml, application/json"),
    get(MAPS, accept="*/*"),
    get(WIDGETS, accept="text/plain"),
    get(WIDGETS, accept="*/*"),
    get(MAPS, accept="text/plain"),
    post(MAPS, config_map(), accept="text/plain"),
    post(MAPS, config_map(), accept="application/json;as=Nothing;g=meta.k8s.io;v=v1"),
    get(f"{MAPS}/a", accept="text/plain"),
    post(WIDGETS, widget(), accept="text/plain"),
    get(f"{MAPS}/a", accept="text/*"),
    get(f"{MAPS}/a", accept="application/*"),
    get(f"{MAPS}/a", accept="text/html;q=0.9,application/json;q=0.5"),
    get(f"{JOBS}/j/scale", accept="text/plain"),
    get(f"{JOBS}/j", accept="text/plain"),
)
CASES.exchanges(
    "a body of an unknown media type is refused",
    post(MAPS, b"x", content_type="text/plain"),
    post(MAPS, b"{}", content_type="application/xml"),
    put(f"{MAPS}/a", b"{}", content_type="text/plain"),
    post(WIDGETS, b"{}", content_type="text/plain"),
    post(MAPS, config_map(), content_type="application/merge-patch+json"),
    post(MAPS, config_map("b"), content_type=""),
    post(MAPS, config_map("c"), content_type="application/json; charset=utf-8"),
    post(MAPS, config_map("d"), content_type="*/*"),
)
CASES.exchanges(
    "a patch of an unknown media type is refused",
    post(MAPS, config_map()),
    post(WIDGETS, widget()),
    *(
        Exchange("PATCH", path, b"{}", content_type=media)
        for path in (f"{MAPS}/a", f"{WIDGETS}/w")
        for media in ("application/json", "text/plain", "application/patch", "application/strategic-merge-patch+json")
    ),
)
CASES.exchanges(
    "a dry run changes nothing",
    post(f"{MAPS}?dryRun=All", config_map()),
    get(f"{MAPS}/a"),
    post(MAPS, config_map()),
    put(f"{MAPS}/a?dryRun=All", config_map(data={"k": "dry"})),
    Exchange("PATCH", f"{MAPS}/a?dryRun=All", {"data": {"k": "x"}}, content_type="application/merge-patch+json"),
    delete(f"{MAPS}/a?dryRun=All"),
    delete(f"{MAPS}/a", {"dryRun": ["All"]}),
    delete(f"{MAPS}?dryRun=All"),
    get(f"{MAPS}/a"),
    post(f"{MAPS}?dryRun=All", config_map()),
    post(f"{MAPS}?dryRun=All", config_map(metadata={"generateName": "g-"})),
    post(f"{WIDGETS}?dryRun=All", widget(spec={"size": 1})),
    post(WIDGETS, widget(spec={"size": 1})),
    Exchange("PATCH", f"{WIDGETS}/w?dryRun=All", {"spec": {"size": 2}}, content_type="application/merge-patch+json"),
    Exchange("PATCH", f"{WIDGETS}/w?dryRun=All", {"spec": {"size": 200}}, content_type="application/merge-patch+json"),
    delete(f"{WIDGETS}/w?dryRun=All"),
    get(f"{WIDGETS}/w"),
)
CASES.exchanges(
    "an unknown dry run is refused",
    post(f"{MAPS}?dryRun=Some", config_map()),
    post(f"{MAPS}?dryRun=", config_map()),
    post(f"{MAPS}?dryRun=All&dryRun=Some", config_map("b")),
    put(f"{MAPS}/a?dryRun=Some", config_map()),
    Exchange("PATCH", f"{MAPS}/a?dryRun=Some", {}, content_type="application/merge-patch+json"),
    delete(f"{MAPS}/a?dryRun=Some"),
    delete(f"{MAPS}/a", {"dryRun": ["Some"]}),
    post(f"{WIDGETS}?dryRun=Some", widget()),
)
CASES.exchanges(
    "a field manager has a name that can be printed and is short",
    post(f"{MAPS}?fieldManager={'m' * 128}", config_map()),
    post(f"{MAPS}?fieldManager={'m' * 129}", config_map("b")),
    put(f"{MAPS}/a?fieldManager={'m' * 129}", config_map()),
    Exchange("PATCH", f"{MAPS}/a?fieldManager={'m' * 129}", {}, content_type="application/merge-patch+json"),
    post(f"{MAPS}?fieldManager=a%0Ab", config_map("c")),
    post(f"{WIDGETS}?fieldManager=a%07b", widget()),
    post(MAPS, config_map("d"), headers={"User-Agent": "agent/v1.2 (linux) x"}),
    post(MAPS, config_map("e"), headers={"User-Agent": "a" * 200}),
    post(MAPS, config_map("f"), headers={"User-Agent": ""}),
)


@pytest.mark.parametrize("case", CASES.params())
async def test_bodies(judge: Judge, case: Case) -> None:
    await judge(case)
