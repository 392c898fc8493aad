"""The pages and files about clusters: settings are Spark's own, manifests are valid, the image's files start what Kubernetes asks for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.packaged import dependencies
from tests.truth.places import DATA, PROJECT

SPARK = Path(dependencies()) / "pyspark"
KUBERNETES = PROJECT / "conf" / "kubernetes"
PAGES = [*(PROJECT / "docs" / name for name in ("cluster.md", "kubernetes.md", "yarn.md")), *sorted(KUBERNETES.iterdir())]
_SETTING = re.compile(r"spark\.[a-z][\w-]*(?:\.[\w-]+)+")
# settings that end in a name of the user's choice
_VOLUMES = tuple(f"spark.kubernetes.{role}.volumes." for role in ("driver", "executor"))
_OPEN = ("spark.hadoop.", "spark.yarn.appMasterEnv.", "spark.executorEnv.", *_VOLUMES)
# Spark's classes have no text with the whole name: Spark joins it from two texts
_OTHERS = {"spark.kubernetes.authenticate.driver.serviceAccountName"}


@pytest.fixture(scope="module")
def known() -> set[str]:
    """All texts of Spark's classes that look like a setting."""
    found: set[str] = set()
    for name in ("core", "yarn", "kubernetes", "sql", "sql-api", "catalyst", "network-common", "common-utils"):
        for jar in (SPARK / "jars").glob(f"spark-{name}_2.13-*.jar"):
            with zipfile.ZipFile(jar) as classes:
                for entry in classes.namelist():
                    if entry.endswith(".class"):
                        found.update(text.decode() for text in re.findall(rb"spark\.[a-z][\w.-]+", classes.read(entry)))
    assert {"spark.yarn.am.memory", "spark.kubernetes.container.image"} <= found
    return found


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_names_settings_that_spark_has(page: Path, known: set[str]) -> None:
    named = {one for one in _SETTING.findall(page.read_text("utf-8")) if not one.endswith((".md", ".conf"))}
    of_spark = {one for one in named if one.startswith(("spark.yarn.", "spark.kubernetes.", "spark.executor.", "spark.driver."))}
    assert {one for one in of_spark - _OTHERS if one not in known and not one.startswith(_OPEN)} == set()


def manifests() -> Iterator[tuple[str, Any]]:
    for path in sorted(KUBERNETES.glob("*.yaml")):
        yield from ((path.name, one) for one in yaml.safe_load_all(path.read_text("utf-8")))


def faults(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str) -> Iterator[str]:
    """The places at which a value breaks a JSON schema of Kubernetes. The schemas use only the keywords that are checked here."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"]]
    assert schema.keys() <= {"type", "format", "enum", "required", "properties", "additionalProperties", "items", "oneOf", "$ref"}
    kinds = schema.get("type", [])
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}
    if kinds and type(value) not in [types[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]:
        yield f"{at}: {value!r} is no {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "oneOf" in schema and not any(not list(faults(value, one, definitions, at)) for one in schema["oneOf"]):
        yield f"{at}: {value!r} is none of {schema['oneOf']}"
    if isinstance(value, dict):
        yield from (f"{at}: no {name}" for name in schema.get("required", ()) if name not in value)
        others = schema.get("additionalProperties", True)
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, others)
            if inner is False:
                yield f"{at}: {name} is unknown"
            elif isinstance(inner, dict):
                yield from faults(part, inner, definitions, f"{at}.{name}")
    if isinstance(value, list):
        for number, part in enumerate(value):
            yield from faults(part, schema.get("items", {}), definitions, f"{at}[{number}]")


def schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "kubernetes" / "schemas.json").read_text("utf-8"))
    return found


def test_manifests_are_valid() -> None:
    found, all_of = schemas(), list(manifests())
    assert {one["kind"] for _, one in all_of} >= {"Pod", "Job", "ServiceAccount", "Role", "RoleBinding", "PersistentVolumeClaim"}
    for name, one in all_of:
        schema = found["definitions"][found["kinds"][one["kind"]]]
        assert list(faults(one, schema, found["definitions"], f"{name} {one['kind']}")) == []


def test_a_fault_in_a_manifest_is_found() -> None:
    found = schemas()
    definitions = found["definitions"]
    job = next(one for _, one in manifests() if one["kind"] == "Job")
    container = job["spec"]["template"]["spec"]["containers"][0]
    for name, value in (("imagee", "x"), ("args", "x"), ("env", [{"value": "x"}]), ("volumeMounts", [{"name": 1, "mountPath": "/"}])):
        kept = container.get(name)
        container[name] = value
        assert len(list(faults(job, definitions[found["kinds"]["Job"]], definitions, "job"))) == 1, name
        container[name] = kept
        if kept is None:
            del container[name]
    assert list(faults(job, definitions[found["kinds"]["Job"]], definitions, "job")) == []


def test_names_in_the_manifests_agree() -> None:
    of_kind = {one["kind"]: one for _, one in manifests()}
    account = of_kind["ServiceAccount"]["metadata"]["name"]
    assert of_kind["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert of_kind["RoleBinding"]["roleRef"]["name"] == of_kind["Role"]["metadata"]["name"]
    job = of_kind["Job"]["spec"]["template"]["spec"]
    assert job["serviceAccountName"] == account
    assert f"--conf=spark.kubernetes.authenticate.driver.serviceAccountName={account}" in job["containers"][0]["args"]
    volumes = of_kind["Pod"]["spec"]["volumes"]
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
    assert claims == {of_kind["PersistentVolumeClaim"]["metadata"]["name"]}
    mounted = {mount["name"] for mount in of_kind["Pod"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in volumes}


@pytest.mark.parametrize("role", ["driver", "executor", "command"])
def test_the_entry_point_starts_what_kubernetes_asks_for(role: str, tmp_path: Path) -> None:
    """With a Java and a spark-submit that print their arguments; tests/long/test_image.py runs the real ones."""
    (tmp_path / "bin").mkdir()
    for path in (tmp_path / "bin" / "java", tmp_path / "bin" / "spark-submit"):
        path.write_text('#!/bin/sh\necho "${0##*/}"\nprintf "%s\\n" "$@"\n')
        path.chmod(0o755)
    given = {
        "SPARK_HOME": str(tmp_path),
        "JAVA_HOME": str(tmp_path),
        "PATH": os.defpath,
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
        "SPARK_JAVA_OPT_0": "-Da=b c",
        "SPARK_JAVA_OPT_1": "-Dd=e",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
    }
    asked = {
        "driver": ["driver", "--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/pullsim/main.py", "sql", "SELECT 1"],
        "executor": ["executor"],
        "command": [sys.executable, "-c", "print('ran')"],
    }[role]
    call = ["sh", str(KUBERNETES / "entrypoint.sh"), *asked]
    printed = subprocess.run(call, env=given, capture_output=True, text=True, check=True).stdout.splitlines()
    if role == "driver":
        assert printed[0] == "spark-submit"
        assert printed[-7:] == ["--deploy-mode", "client", *asked[1:]][-7:]
        assert "spark.driver.bindAddress=10.0.0.1" in printed
    elif role == "executor":
        assert printed[:5] == ["java", "-Da=b c", "-Dd=e", "-Xms1024m", "-Xmx1024m"]
        assert printed[5:7] == ["-cp", f"{tmp_path}/conf:{tmp_path}/jars/*"]
        at = printed.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
        options = dict(zip(printed[at + 1 :: 2], printed[at + 2 :: 2], strict=True))
        names = ("driver-url", "executor-id", "cores", "app-id", "hostname", "resourceProfileId", "podName")
        assert set(options) == {f"--{name}" for name in names}
        assert options["--podName"] == "pod"
    else:
        assert printed == ["ran"]
