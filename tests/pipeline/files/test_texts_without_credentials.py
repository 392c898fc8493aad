"""Texts of errors and of progress show no credentials of a URI."""

from __future__ import annotations

import io
import pickle
from contextlib import redirect_stderr

import pytest

from pipeline.files import given_files, object_store
from pipeline.files.given_files import GivenFileError, require_input
from pipeline.main import run
from pipeline.requests.request_lines import RequestError
from pipeline.terminal import progress_to_stderr
from store_format.errors import StoreError, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abfs://:TOPSECRET@acct.dfs.core.windows.net/c/x: none", "abfs://***@acct.dfs.core.windows.net/c/x: none"),
        ("abfss://container@acct.dfs.core.windows.net/x", "abfss://container@acct.dfs.core.windows.net/x"),
        ("s3://AKIA:TOP/SECRET@b/x, got 'AKIA:TOP/SECRET@b/x'", "s3://***@b/x, got '***@b/x'"),
        ("gs://token@b/x?endpoint_override=127.0.0.1:1&key=TOPSECRET", "gs://***@b/x?endpoint_override=***&key=***"),
        ("'s3://b/x?secret_key=TOPSECRET' is not there", "'s3://b/x?secret_key=***' is not there"),
        ("hdfs://user@host:8020/a@b", "hdfs://user@host:8020/a@b"),
        ("hdfs://[::1]:8020/a@b: none", "hdfs://[::1]:8020/a@b: none"),
        ("http://me:TOPSECRET@h/x", "http://***@h/x"),
        ("s3://b/a?b/lake", "s3://b/a?b/lake"),
        ("a@b: x=1?y=2", "a@b: x=1?y=2"),
    ],
)
def test_credentials_of_a_uri_are_in_no_text(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    assert str(pickle.loads(pickle.dumps(StoreError(text, "a", "b")))) == f"{shown}: expected a, found b"  # noqa: S301 (our own)
    assert str(RequestError(text, 1, "a", "b")) == f"{shown}, line 1: expected a, found b"
    assert str(GivenFileError(text)) == shown
    with redirect_stderr(io.StringIO()) as written:
        progress_to_stderr(text)
    assert written.getvalue() == f"pullsim: {shown}\n"


@pytest.mark.parametrize("uri", ["abfs://:TOPSECRET@acct.dfs.core.windows.net/c/x", "s3://AKIA:TOPSECRET@b/x", "s3://AKIA:TOP/SECRET@b/x"])
def test_a_file_that_cannot_be_opened_is_named_without_credentials(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(given_files, "_ANSWER_SECONDS", 2)
    monkeypatch.setattr(object_store, "_TRIES", 1)
    with pytest.raises(GivenFileError) as refused:
        require_input("STORE", uri)
    assert str(refused.value).startswith(f"STORE {uri.partition('://')[0]}://***@")
    assert "SECRET" not in str(refused.value)


def test_a_store_that_cannot_be_written_is_named_without_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "--lake", "lake", "s3://key:secret@bucket/store"]) == 2
    assert "s3://***@bucket/store: expected a local directory" in (err := capsys.readouterr().err)
    assert "secret" not in err
