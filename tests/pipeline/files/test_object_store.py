"""S3: one place decides endpoint, region and credentials for all libraries, and nobody sees the secret."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pullsim
from pipeline.files.object_store import ObjectStoreError, S3Access, is_s3, require_bucket, require_keys, s3_access, take_settings
from pipeline.files.store_files import absolute_path
from pipeline.lake import session
from pipeline.lake.committed import lake_root, require_there
from pipeline.lake.driver_lock import write_alone
from pipeline.lake.lake_errors import LakeError
from pipeline.main import run

ENDPOINT = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    # unset again what a test sets in os.environ
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.mark.parametrize("path", ["s3://bucket/a", "s3a://bucket/a", "s3n://bucket/a"])
def test_a_path_on_s3_has_one_name(path: str) -> None:
    assert (is_s3(path), absolute_path(path)) == (True, "s3://bucket/a")


@pytest.mark.parametrize("path", ["hdfs://host/a", "/s3://a", "s3:/a", "S3 s3://a"])
def test_other_paths_are_not_on_s3(path: str) -> None:
    assert not is_s3(path)


def test_variables_win_over_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[p]\naws_access_key_id = pk\naws_secret_access_key = ps\naws_session_token = pt\n", "utf-8")
    (tmp_path / "config").write_text(f"[profile p]\nregion = eu-west-1\nendpoint_url = {ENDPOINT}\n", "utf-8")
    monkeypatch.setenv("AWS_PROFILE", "p")
    assert s3_access() == S3Access(ENDPOINT, "eu-west-1", "pk", "ps", "pt")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ek")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "es")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert s3_access() == S3Access(ENDPOINT, "us-west-2", "ek", "es", None)


def test_keys_and_token_of_two_files_are_not_mixed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[p]\naws_access_key_id = pk\naws_secret_access_key = ps\n", "utf-8")
    (tmp_path / "config").write_text("[profile p]\naws_access_key_id = x\naws_session_token = xt\nregion = eu-west-1\n", "utf-8")
    monkeypatch.setenv("AWS_PROFILE", "p")
    assert s3_access() == S3Access(None, "eu-west-1", "pk", "ps", None)


def test_settings_of_spark_win_over_variables_and_leave_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ek")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "es")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "et")  # of the keys "ek" and "es"
    given = {"access.key": "ck", "secret.key": "cs", "endpoint": "127.0.0.1:1", "connection.ssl.enabled": "false", "threads.max": "7"}
    rest = take_settings({f"spark.hadoop.fs.s3a.{name}": value for name, value in given.items()} | {"spark.x": "y"})
    assert rest == {"spark.hadoop.fs.s3a.connection.ssl.enabled": "false", "spark.hadoop.fs.s3a.threads.max": "7", "spark.x": "y"}
    assert s3_access() == S3Access(ENDPOINT, "us-east-1", "ck", "cs", None)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("access.key", "expected spark.hadoop.fs.s3a.secret.key beside it, found none"),
        ("secret.key", "expected spark.hadoop.fs.s3a.access.key beside it, found none"),
        ("session.token", "expected spark.hadoop.fs.s3a.access.key beside it, found none"),
        ("bucket.b.secret.key", "expected settings of all buckets, found one of a bucket"),
        ("bucket.b.c.session.token", "expected settings of all buckets, found one of a bucket"),
    ],
)
def test_a_part_of_the_credentials_and_those_of_one_bucket_are_refused(setting: str, told: str) -> None:
    with pytest.raises(ObjectStoreError) as refused:
        take_settings({f"spark.hadoop.fs.s3a.{setting}": "topsecret"})
    assert told in str(refused.value)
    assert "topsecret" not in str(refused.value)


@pytest.mark.parametrize("letter", "#?%*[ é\\:+")
def test_a_lake_on_s3_with_letters_that_libraries_read_differently_is_refused(letter: str) -> None:
    with pytest.raises(LakeError) as refused:
        require_there(f"s3://b/a{letter}b/lake")
    assert str(refused.value).startswith(f"s3://b/a{letter}b/lake: expected a lake on S3 with a path of the letters")
    assert repr(letter) in str(refused.value)


@pytest.mark.parametrize("path", ["s3://b/a//lake", "s3a://b/a/../lake", "s3://b/./lake", "s3:///lake", "s3://b/lake/.."])
def test_a_lake_on_s3_has_one_path(path: str) -> None:
    with pytest.raises(LakeError, match="expected a lake on S3 with a path without //, "):
        lake_root(path)
    assert lake_root("s3://b/a/lake/") == "s3://b/a/lake"
    assert lake_root("s3://b/a/.lake..") == "s3://b/a/.lake.."


def test_a_profile_without_keys_is_refused_where_a_lake_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile fetched]\ncredential_process = /bin/false\n[profile plain]\nregion = eu-west-1\n", "utf-8")
    monkeypatch.setenv("AWS_PROFILE", "fetched")
    missing = "expected the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY .*, found a profile with credential_process; set both"
    with pytest.raises(ObjectStoreError, match=missing):
        require_keys("s3://b/lake")
    with pytest.raises(ObjectStoreError, match=missing):
        write_alone("s3://b/lake", "one", "import")
    monkeypatch.setenv("AWS_PROFILE", "plain")  # the machine may have a role
    require_keys("s3://b/lake")
    monkeypatch.setenv("AWS_PROFILE", "fetched")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    require_keys("s3://b/lake")


def test_a_python_session_for_a_lake_on_s3_opens_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.files.object_store.require_bucket", lambda path: None)
    monkeypatch.setattr("pipeline.lake.committed.require_there", lambda path: None)
    monkeypatch.setattr("pullsim.session.session", lambda *, s3: s3)
    sessions: list[Any] = [pullsim.open(place).spark for place in ("s3a://b/lake", "lake")]
    assert sessions == [True, False]


def test_all_libraries_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    access = S3Access(ENDPOINT, "eu-west-1", "k", "topsecret", "token")
    delta, hadoop = access.delta_options(), access.hadoop_settings() | access.hadoop_credentials()
    assert [delta["aws_endpoint"], delta["aws_region"], delta["aws_access_key_id"], delta["aws_secret_access_key"]] == [
        hadoop[f"fs.s3a.{name}"] for name in ("endpoint", "endpoint.region", "access.key", "secret.key")
    ]
    assert delta["conditional_put"] == "etag"
    for name, value in access.variables().items():
        monkeypatch.setenv(name, value)
    assert s3_access() == access
    assert "topsecret" not in repr(access) + str(access.hadoop_settings())


@pytest.mark.parametrize(
    ("path", "variables", "words"),
    [
        ("s3://", {}, "found no bucket"),
        ("s3://b/x", {}, "expected the region of S3 in AWS_REGION"),
        ("s3://b/x", {"AWS_PROFILE": "none"}, "AWS_PROFILE=none: expected a profile"),
        ("s3://b/x", {"AWS_ENDPOINT_URL": ENDPOINT}, "s3://b/x: expected S3 at http://127.0.0.1:1, found no answer"),
    ],
)
def test_what_is_missing_is_named(path: str, variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ObjectStoreError, match=words):
        require_bucket(path)


def test_a_damaged_profile_is_named_without_its_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("aws_secret_access_key = topsecret\n", "utf-8")
    monkeypatch.setenv("AWS_PROFILE", "p")
    with pytest.raises(ObjectStoreError) as refused:
        s3_access()
    assert str(tmp_path / "credentials") in str(refused.value)
    assert "topsecret" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("generate s3://b/new --messages 1", "s3://b/new"),
        ("recover {store} --out s3://b/out.json", "s3://b/out.json"),
        ("frames s3://b/frames.jsonl --out {folder}/out.jsonl", "s3://b/frames.jsonl"),
        ("frames {store}/config/topics.json --out s3a://b/out.jsonl", "s3a://b/out.jsonl"),
    ],
)
def test_commands_of_local_files_refuse_uris(
    arguments: str, named: str, small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run(arguments.format(store=small_store, folder=tmp_path).split())
    err = capsys.readouterr().err
    assert (code, len(err.splitlines())) == (2, 1), err
    assert f"error: {named}: expected a local path, found a URI" in err
    assert list(tmp_path.iterdir()) == []


SECRETS = ("s3a.encryption.key", "s3a.bucket.b.encryption.key", "s3a.proxy.password", "azure.account.key.a.dfs.core.windows.net", "x.token")


def test_secrets_of_hadoop_are_no_settings_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """They become settings of the session, which are on no command line."""
    started: dict[str, str] = {}
    of_session: dict[str, str] = {}

    def submitted(builder: Any) -> Any:
        started.update(builder._options)
        return SimpleNamespace(conf=SimpleNamespace(set=of_session.__setitem__))

    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(session, "_submitted_session", submitted)
    plain = {
        "spark.hadoop.fs.s3a.threads.max": "7",
        "spark.hadoop.fs.s3a.encryption.algorithm": "SSE-C",
        "spark.ui.key": "k",
        "spark.hadoop.fs.s3a.delegation.token.binding": "b",
    }
    given = {f"spark.hadoop.fs.{name}": "topsecret" for name in SECRETS}
    session.build_session(conf=take_settings(plain | given), functions=False)
    assert started == {"spark.app.name": "pullsim"} | plain
    assert of_session == {f"fs.{name}": "topsecret" for name in SECRETS}
