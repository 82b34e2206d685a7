# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives import serialization

from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.kube.rest import credentials
from multikueue.kube.rest.tokens import FileToken


def kubeconfig(user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def test_a_kubeconfig_gives_server_namespace_and_identity() -> None:
    config = credentials.from_dict(kubeconfig({"token": "t", "as": "alice", "as-groups": ["dev"]}))
    assert (config.name, config.server, config.namespace) == ("k", "https://127.0.0.1:6443", "team")
    assert config.impersonate == credentials.Impersonation("alice", ("dev",))


@pytest.mark.parametrize(
    ("config", "want"),
    [
        pytest.param({}, "no current-context", id="no context"),
        pytest.param(
            {"current-context": "x", "contexts": [{"name": "c"}]}, "no entry 'x'; it has c", id="unknown context"
        ),
        pytest.param(kubeconfig() | {"users": []}, "users has no entry 'u'", id="unknown user"),
        pytest.param(kubeconfig(server="nonsense"), "no usable server URL", id="no URL"),
        pytest.param(kubeconfig({"client-certificate-data": "x"}), "not base64", id="no base64"),
        pytest.param(
            kubeconfig({"client-certificate-data": base64.b64encode(b"x").decode()}), "needs its key", id="no key"
        ),
        pytest.param(kubeconfig(server="https://host:99999"), "no usable server URL", id="a port out of range"),
        pytest.param(kubeconfig(server="https://[::1"), "no usable server URL", id="brackets that do not close"),
        pytest.param(
            kubeconfig({"as": "alice", "as-groups": 5}), "as-groups must be a list", id="groups that are none"
        ),
        pytest.param(kubeconfig() | {"users": {}}, "users has no entry 'u'", id="an empty mapping of users"),
        pytest.param(kubeconfig() | {"users": "x"}, "users must be a list, found str", id="users are text"),
        pytest.param(
            kubeconfig() | {"clusters": ["k"]}, r"clusters\[0\] must be a mapping, found str", id="a cluster is text"
        ),
        pytest.param(
            kubeconfig() | {"users": [{"name": "u", "user": ["t"]}]},
            r"users\[0\].user must be a mapping, found list",
            id="a user is a list",
        ),
        pytest.param(
            kubeconfig({"exec": "aws"}), r"users\[0\].user.exec must be a mapping, found str", id="a plug-in is text"
        ),
        pytest.param(kubeconfig({"client-certificate-data": 7}), "not base64", id="a number for a certificate"),
    ],
)
def test_a_malformed_kubeconfig_is_an_error_with_the_path(config: dict[str, Any], want: str) -> None:
    with pytest.raises(BadInput, match=want):
        credentials.from_dict(config, source="Secret a/b")


def test_yaml_that_breaks_names_the_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("clusters:\n  - a: [1\n")
    with pytest.raises(BadInput, match=rf"{path}: not YAML at line \d"):
        credentials.load(path)


def test_several_files_are_merged_the_first_one_winning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(yaml.safe_dump({"current-context": "c", "contexts": kubeconfig()["contexts"]}))
    two.write_text(yaml.safe_dump(kubeconfig({"tokenFile": "token"}) | {"current-context": "other"}))
    monkeypatch.setenv("KUBECONFIG", f"{one}{os.pathsep}{two}{os.pathsep}{tmp_path / 'missing'}")
    config = credentials.load()
    assert isinstance(config.tokens, FileToken)
    assert config.tokens._path == tmp_path / "token"  # relative to the file that names it


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one\n")
    source = FileToken(path, clock=clock)
    assert await source.token() == "one"
    path.write_text("two-two")
    assert await source.token() == "one"
    clock.advance(11)
    assert await source.token() == "two-two"
    path.unlink()
    clock.advance(11)
    assert await source.token() == "two-two"  # while the file is being replaced


def plugin(tmp_path: Path, body: str) -> dict[str, Any]:
    path = tmp_path / "plugin.py"
    path.write_text(f"#!{sys.executable}\nimport json, os, pathlib\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "env": [{"name": "X", "value": "y"}]}


async def test_an_exec_plugin_runs_again_when_its_token_is_about_to_end(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    count = tmp_path / "count"
    count.write_text("")
    spec = plugin(
        tmp_path,
        f"p = pathlib.Path({str(count)!r}); p.write_text(p.read_text() + os.environ['X'])\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        "print(json.dumps({'status': {'token': p.read_text(), 'expirationTimestamp': '2026-01-01T01:00:00Z'}}))",
    )
    source = credentials.from_dict(kubeconfig({"exec": spec}), clock=clock).tokens
    assert source is not None
    assert [await source.token(), await source.token()] == ["y", "y"]
    clock.advance(3541)
    assert await source.token() == "yy"
    assert await source.refresh()
    assert await source.token() == "yyy"


async def test_an_exec_plugin_gets_the_cluster_if_it_asks_for_it(tmp_path: Path) -> None:
    authority = trustme.CA().cert_pem.bytes()
    (tmp_path / "ca.crt").write_bytes(authority)
    spec = plugin(tmp_path, "print(json.dumps({'status': {'token': os.environ['KUBERNETES_EXEC_INFO']}}))")
    cluster = {
        "certificate-authority": str(tmp_path / "ca.crt"),
        "tls-server-name": "api.example",
        "extensions": [
            {"name": "another.example", "extension": {"secret": "not for a plug-in"}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "team-a"}},
        ],
    }

    async def told(**more: Any) -> Any:
        source = credentials.from_dict(kubeconfig({"exec": {**spec, **more}}, **cluster)).tokens
        assert source is not None
        return json.loads(await source.token() or "")["spec"].get("cluster")

    assert await told() is None
    assert await told(provideClusterInfo=True) == {
        "server": "https://127.0.0.1:6443/",
        "tls-server-name": "api.example",
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "config": {"audience": "team-a"},
    }


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("import sys; sys.exit('no luck')", "exited with 1: no luck", id="it fails"),
        pytest.param("print('hello')", "printed no ExecCredential", id="it prints something else"),
        pytest.param("print(json.dumps({'status': {}}))", "neither a token nor a certificate", id="it gives nothing"),
    ],
)
async def test_an_exec_plugin_that_fails_is_an_error_with_its_output(tmp_path: Path, body: str, want: str) -> None:
    source = credentials.from_dict(kubeconfig({"exec": plugin(tmp_path, body)})).tokens
    assert source is not None
    with pytest.raises(BadInput, match=want):
        await source.token()


async def test_a_missing_exec_plugin_gives_its_hint() -> None:
    spec = {"command": "/no/such/plugin", "installHint": "get it from your administrator"}
    source = credentials.from_dict(kubeconfig({"exec": spec})).tokens
    assert source is not None
    with pytest.raises(BadInput, match="get it from your administrator"):
        await source.token()


def test_a_rotated_client_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    authority = trustme.CA()
    clock = ManualClock()

    def write(name: str) -> None:
        leaf = authority.issue_cert(name)
        (tmp_path / "cert").write_bytes(leaf.cert_chain_pems[0].bytes())
        (tmp_path / "key").write_bytes(leaf.private_key_pem.bytes())

    write("one.example")
    user = {"client-certificate": str(tmp_path / "cert"), "client-key": str(tmp_path / "key")}
    config = credentials.from_dict(kubeconfig(user), clock=clock)
    first = config.tls.context()
    assert config.tls.context() is first
    write("two.example.with.a.longer.name")
    clock.advance(6)
    assert config.tls.context() is not first


def test_half_a_rotation_keeps_the_former_certificate_until_the_other_half_is_there(tmp_path: Path) -> None:
    authority, clock = trustme.CA(), ManualClock()
    first, second = authority.issue_cert("one.example"), authority.issue_cert("two.example.with.a.longer.name")
    (tmp_path / "cert").write_bytes(first.cert_chain_pems[0].bytes())
    (tmp_path / "key").write_bytes(first.private_key_pem.bytes())
    user = {"client-certificate": str(tmp_path / "cert"), "client-key": str(tmp_path / "key")}
    tls = credentials.from_dict(kubeconfig(user), clock=clock).tls
    good = tls.context()
    (tmp_path / "cert").write_bytes(second.cert_chain_pems[0].bytes())
    clock.advance(6)
    assert tls.context() is good
    (tmp_path / "key").write_bytes(second.private_key_pem.bytes())
    clock.advance(6)
    assert tls.context() is not good


def test_an_encrypted_key_is_refused_and_never_asks_the_terminal() -> None:
    leaf = trustme.CA().issue_cert("one.example")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    certificate = leaf.cert_chain_pems[0].bytes()
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    with pytest.raises(BadInput, match="an encrypted key cannot be used"):
        credentials.from_dict(kubeconfig(user)).tls.context()


async def test_a_plugin_named_by_a_relative_path_lies_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    plugin = tmp_path / "bin" / "login"
    answer = '{"kind": "ExecCredential", "status": {"token": "beside"}}'
    plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/login"}}
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig(user)))
    tokens = credentials.load(tmp_path / "config").tokens
    assert tokens is not None
    assert await tokens.token() == "beside"


def test_a_service_account_is_found_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    (tmp_path / "namespace").write_text("kueue-system")
    config = credentials.in_cluster(root=tmp_path)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "kueue-system")


def test_an_empty_authority_is_a_mistake_and_not_the_systems() -> None:
    config = credentials.from_dict(kubeconfig(None, **{"certificate-authority-data": base64.b64encode(b" ").decode()}))
    with pytest.raises(BadInput, match="authority is empty"):
        config.tls.context()
