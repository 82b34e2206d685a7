# SPDX-License-Identifier: Apache-2.0
"""Pod templates of every shape that an API server may take in a Job, for Hypothesis.

Owns the lists with keys, odd quantities, numbers or names, empty and missing values, and every kind of volume and probe
that a Workload's schema treats otherwise than a Job's. Not all of them are taken: the API server decides.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]
Strategy = st.SearchStrategy[Any]

QUANTITIES = st.sampled_from(
    [
        "1",
        "0",
        "0.5",
        "100m",
        "1e3",
        "12E6",
        "1Ki",
        "1.5Gi",
        "1E",
        "5e-1",
        ".5",
        "2.",
        "+1",
        "100000000000000000",
        1,
        2.5,
    ]
)
NAMES = st.sampled_from(["a", "b", "c"])
WORDS = st.one_of(
    st.sampled_from(
        ["", "x", "$(A)", "$$(B)", "$(C", "${A}", "line\nbreak", "ÿ", "日本", "\U0001f600", "1", "true", "null"]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8),
)
PORTS = st.one_of(st.integers(1, 65535), st.just("http"))
SELECTORS: Strategy = st.one_of(
    st.none(),
    st.just({}),
    st.just({"matchLabels": {"a": ""}}),
    st.just({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}),
    st.just({"matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "v"]}]}),
)


_NOT_OF_INITS = frozenset({"lifecycle", "livenessProbe", "readinessProbe", "startupProbe"})


def record(**fields: Strategy) -> Strategy:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def some(of: Strategy, most: int = 3) -> Strategy:
    """A list that may be missing, empty, or hold the same twice."""
    return st.one_of(st.none(), st.lists(of, max_size=most))


def unlike(of: Strategy, key: str, most: int = 3) -> Strategy:
    """A list without two of one key, as the API server insists."""
    return st.lists(of, max_size=most, unique_by=lambda each: each[key])


def _with(required: Object, **fields: Strategy) -> Strategy:
    return st.fixed_dictionaries({key: st.just(value) for key, value in required.items()}, optional=fields)


def _variables() -> Strategy:
    sources = st.one_of(
        _with({"fieldPath": "metadata.name"}, apiVersion=st.just("v1")).map(lambda each: {"fieldRef": each}),
        _with({"key": "k", "name": "s"}, optional=st.booleans()).map(lambda each: {"secretKeyRef": each}),
        _with({"key": "k", "name": "m"}, optional=st.none()).map(lambda each: {"configMapKeyRef": each}),
        _with({"resource": "limits.cpu"}, divisor=st.sampled_from(["1", "1m", "0", 1]), containerName=st.just("")).map(
            lambda each: {"resourceFieldRef": each}
        ),
    )
    name = st.sampled_from(["A", "B", "C"])
    return st.one_of(
        st.fixed_dictionaries({"name": name}, optional={"value": st.one_of(st.none(), WORDS)}),
        st.fixed_dictionaries({"name": name, "valueFrom": sources}),
    )


def _resources() -> Strategy:
    amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu", "ephemeral-storage"]), QUANTITIES)
    return st.one_of(
        record(requests=amounts),
        record(limits=amounts),
        st.sampled_from([{}, {"requests": None}, {"limits": {}, "requests": {}}]),
    )


def _probes() -> Strategy:
    http = st.fixed_dictionaries(
        {"port": PORTS},
        optional={
            "path": st.sampled_from(["", "/", "/x"]),
            "scheme": st.sampled_from(["HTTP", "HTTPS"]),
            "host": st.just(""),
            "httpHeaders": some(st.just({"name": "X", "value": ""})),
        },
    )
    ways = st.one_of(
        http.map(lambda each: {"httpGet": each}),
        st.just({"exec": {"command": ["a", "a"]}}),
        PORTS.map(lambda port: {"tcpSocket": {"port": port}}),
        st.sampled_from([{"grpc": {"port": 1}}, {"grpc": {"port": 1, "service": "s"}}]),
    )
    numbers = record(
        timeoutSeconds=st.integers(0, 9), periodSeconds=st.integers(0, 2**31 - 1), initialDelaySeconds=st.just(0)
    )
    return st.tuples(ways, numbers).map(lambda both: both[0] | both[1])


def _container(name: str) -> Strategy:
    return _with(
        {"name": name, "image": "none"},
        command=some(WORDS),
        args=some(WORDS),
        workingDir=st.just(""),
        env=some(_variables(), 5),
        envFrom=some(st.sampled_from([{"secretRef": {"name": "a"}}, {"prefix": "P_", "configMapRef": {"name": "a"}}])),
        ports=some(
            record(protocol=st.sampled_from(["TCP", "UDP", "SCTP"]), hostIP=st.sampled_from(["", "127.0.0.1"])).flatmap(
                lambda port: st.sampled_from([80, 443]).map(lambda number: port | {"containerPort": number})
            )
        ),
        resources=_resources(),
        livenessProbe=_probes(),
        readinessProbe=st.one_of(st.none(), _probes()),
        startupProbe=_probes(),
        lifecycle=st.sampled_from(
            [{}, {"preStop": {"sleep": {"seconds": 1}}}, {"postStart": {"httpGet": {"port": "http"}}}]
        ),
        securityContext=record(
            capabilities=st.sampled_from([{}, {"add": ["A", "A"]}, {"drop": None}]),
            runAsUser=st.sampled_from([0, 2**31 - 1]),
            privileged=st.just(False),
            seccompProfile=st.just({"type": "RuntimeDefault"}),
            procMount=st.none(),
        ),
        imagePullPolicy=st.sampled_from(["", "Always", "Never"]),
        terminationMessagePath=st.sampled_from(["", "/x"]),
        stdin=st.booleans(),
        resizePolicy=st.just([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
    )


def _volumes() -> Strategy:
    items = some(st.sampled_from([{"key": "k", "path": "p"}, {"key": "k", "path": "q", "mode": 0}]))
    field = {"path": "f", "fieldRef": {"fieldPath": "metadata.name"}}
    sources = some(
        st.sampled_from(
            [
                {"configMap": {}},
                {"configMap": {"name": "a", "items": [{"key": "k", "path": "p"}], "optional": False}},
                {"secret": {"name": "b"}},
                {"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [field]}},
                {"downwardAPI": {}},
            ]
        ),
    )
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1.5Gi"}}}
    kinds = st.one_of(
        st.sampled_from([{}, {"emptyDir": {}}, {"emptyDir": {"medium": "Memory", "sizeLimit": "1e3"}}]),
        _with({"name": "m"}, items=items, defaultMode=st.sampled_from([0, 511]), optional=st.booleans()).map(
            lambda each: {"configMap": each}
        ),
        _with({"secretName": "s"}, items=items).map(lambda each: {"secret": each}),
        record(sources=sources).map(lambda each: {"projected": each}),
        st.sampled_from(
            [
                {"hostPath": {"path": "/x", "type": ""}},
                {"downwardAPI": {"items": [field]}},
                {"persistentVolumeClaim": {"claimName": "c"}},
                {"nfs": {"server": "s", "path": "/p"}},
                {"csi": {"driver": "d", "volumeAttributes": {"a": ""}, "nodePublishSecretRef": {}}},
                {"iscsi": {"targetPortal": "t", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
                {"rbd": {"monitors": ["m", "m"], "image": "i"}},
                {"azureDisk": {"diskName": "n", "diskURI": "https://blob.example/x"}},
                {"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": claim}}},
                {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
            ]
        ),
    )
    return unlike(st.tuples(NAMES, kinds).map(lambda both: {"name": both[0]} | both[1]), "name")


def _affinity() -> Strategy:
    term = st.sampled_from(
        [
            {"matchExpressions": [{"key": "k", "operator": "Exists"}] * 2},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            {},
        ]
    )
    required = st.lists(term, min_size=1, max_size=2).map(
        lambda terms: {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    )
    preferred = some(term.map(lambda each: {"weight": 1, "preference": each})).map(
        lambda terms: {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    )
    near = st.fixed_dictionaries(
        {"topologyKey": st.just("zone")},
        optional={"labelSelector": SELECTORS, "namespaces": some(NAMES), "namespaceSelector": SELECTORS},
    )
    near = some(near).map(lambda terms: {"requiredDuringSchedulingIgnoredDuringExecution": terms})
    return record(nodeAffinity=st.one_of(st.none(), required, preferred), podAffinity=near, podAntiAffinity=near)


def pod_specs() -> Strategy:
    """Pod specs."""
    tolerations = st.sampled_from(
        [
            {"key": "k"},
            {"key": "k", "value": ""},
            {"operator": "Exists"},
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2**40},
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1},
        ]
    )
    inits = st.one_of(
        _container("i").map(lambda each: {key: value for key, value in each.items() if key not in _NOT_OF_INITS}),
        _container("i").map(lambda each: each | {"restartPolicy": "Always"}),
    )
    return st.fixed_dictionaries(
        {
            "containers": st.one_of(
                _container("c").map(lambda each: [each]),
                st.tuples(_container("c"), _container("d")).map(list),
            ),
            "restartPolicy": st.sampled_from(["Never", "OnFailure"]),
        },
        optional={
            "initContainers": st.one_of(st.none(), inits.map(lambda each: [each])),
            "volumes": _volumes(),
            "imagePullSecrets": some(st.sampled_from([{"name": "a"}, {"name": "b"}, {"name": ""}, {}])),
            "hostAliases": some(
                st.tuples(st.sampled_from(["127.0.0.1", "::1"]), some(st.sampled_from(["h", "g"]))).map(
                    lambda both: {"ip": both[0], "hostnames": both[1]}
                )
            ),
            "tolerations": some(tolerations),
            "topologySpreadConstraints": unlike(
                st.tuples(st.sampled_from(["zone", "rack"]), SELECTORS).map(
                    lambda both: {
                        "maxSkew": 1,
                        "topologyKey": both[0],
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": both[1],
                    }
                ),
                "topologyKey",
            ),
            "resourceClaims": unlike(
                st.tuples(NAMES, st.sampled_from(["resourceClaimName", "resourceClaimTemplateName"])).map(
                    lambda both: {"name": both[0], both[1]: "r"}
                ),
                "name",
            ),
            "schedulingGates": unlike(NAMES.map(lambda name: {"name": name}), "name"),
            "readinessGates": some(st.just({"conditionType": "example.com/x"})),
            "affinity": st.one_of(st.none(), _affinity()),
            "nodeSelector": st.sampled_from([None, {}, {"pool": ""}, {"pool": "x"}]),
            "dnsConfig": record(
                nameservers=some(st.sampled_from(["1.1.1.1", "::1"]), 2),
                searches=some(st.just("a.b")),
                options=some(st.sampled_from([{"name": "ndots", "value": "5"}, {"name": "debug"}])),
            ),
            "securityContext": record(
                sysctls=st.just([{"name": "kernel.shm_rmid_forced", "value": ""}]),
                supplementalGroups=some(st.just(0)),
                fsGroup=st.just(0),
                seccompProfile=st.none(),
            ),
            "overhead": st.none(),
            "terminationGracePeriodSeconds": st.sampled_from([2, 30, 2**40]),
            "activeDeadlineSeconds": st.sampled_from([1, 2**31 - 1]),
            "priorityClassName": st.just(""),
            "hostNetwork": st.booleans(),
            "enableServiceLinks": st.booleans(),
            "setHostnameAsFQDN": st.booleans(),
            "shareProcessNamespace": st.none(),
            "automountServiceAccountToken": st.booleans(),
            "os": st.just({"name": "linux"}),
            "resources": st.none(),
        },
    )


def pod_templates() -> Strategy:
    """Pod templates of Jobs."""
    metadata = record(
        labels=st.sampled_from([None, {}, {"a": ""}, {"a": "b", "example.com/C": "D_.e"}]),
        annotations=st.one_of(st.none(), st.dictionaries(st.sampled_from(["a", "example.com/B"]), WORDS, max_size=2)),
        name=st.just("n"),
        finalizers=some(st.just("example.com/f")),
        creationTimestamp=st.none(),
    )
    return st.fixed_dictionaries({"spec": pod_specs()}, optional={"metadata": metadata})
