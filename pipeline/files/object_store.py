"""Opens S3. One place decides its endpoint, region and credentials, and gives them to pyarrow, deltalake and Hadoop.

Order: Spark's settings fs.s3a.* under --conf, then the variables AWS_*, then the profile AWS_PROFILE. A profile without keys, and a machine
with a role, leave the credentials to the libraries.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from store_format.errors import UnusableInputError

_SCHEME = re.compile(r"s3[an]?://", re.ASCII)
S3 = "s3://"
_KEY, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
_CREDENTIALS = (_KEY, _SECRET, _TOKEN)
# settings of a profile by which Amazon's own libraries get keys elsewhere
_FETCHED = ("credential_process", "sso_session", "sso_start_url", "role_arn")
_ENDPOINTS, _REGIONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_REGION", "AWS_DEFAULT_REGION")
# a setting of Hadoop's S3A -> the variable with the same meaning
_OF_HADOOP = {
    "fs.s3a.access.key": _KEY,
    "fs.s3a.secret.key": _SECRET,
    "fs.s3a.session.token": _TOKEN,
    "fs.s3a.endpoint": _ENDPOINTS[0],
    "fs.s3a.endpoint.region": _REGIONS[0],
}
_HADOOP, _ENCRYPTED = "spark.hadoop.", "fs.s3a.connection.ssl.enabled"
# credentials and endpoint of one bucket, which only Hadoop understands
_OF_BUCKET = re.compile(r"spark\.hadoop\.fs\.s3a\.bucket\..+\.(?:access\.key|secret\.key|session\.token|endpoint|endpoint\.region)$")
_ANY_BUCKET = "give fs.s3a.access.key and the like, which hold for all buckets of a command"
# a secret of any file system of Hadoop, also of one bucket; with Azure, the account's name follows the secret's name
_LAST_WORD = r"(?:.+\.)?(?:key|password|secret|token)"
_SECRET_NAME = re.compile(rf"spark\.hadoop\.(?P<name>fs\.{_LAST_WORD}|fs\.azure\.{_LAST_WORD}\..+)")
# servers with an endpoint of their own take any region
_ANY_REGION = "us-east-1"
# seconds to connect; seconds until a request without progress ends; tries of the first request; tries of the others
_CONNECT_SECONDS, _REQUEST_SECONDS, _FIRST_TRIES, _TRIES = 3, 60, 2, 5
_REFUSED = re.compile(r"ACCESS_DENIED|SIGNATURE|INVALID_ACCESS_KEY|TOKEN|HTTP status 403|NotFound Message: No user")
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket")


# With this option, a file of less than 5 MB is one PUT instead of three requests, and the close raises the errors
# of opening. pyarrow 20 does not have it.
_ONE_PUT = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}


class ObjectStoreError(UnusableInputError, ValueError):
    """S3 cannot be reached, or refuses a request."""


@dataclass(frozen=True, slots=True)
class S3Access:
    """The endpoint, region and credentials of S3; None for a value that the libraries find.

    Attributes:
        endpoint: URL of a server; None for Amazon's.
        region: name of the region.
        key: id of the access key.
        secret: secret of the access key.
        token: token of a session.
    """

    endpoint: str | None
    region: str | None
    key: str | None
    secret: str | None = field(repr=False)
    token: str | None = field(repr=False)

    def variables(self) -> dict[str, str]:
        """The environment variables for these values."""
        values = {_KEY: self.key, _SECRET: self.secret, _TOKEN: self.token, _ENDPOINTS[0]: self.endpoint, _REGIONS[0]: self.region}
        return {name: value for name, value in values.items() if value}

    def delta_options(self) -> dict[str, str]:
        """The storage options of deltalake. A commit of deltalake is a PUT that fails if the object exists, so only one run makes it."""
        options = {"conditional_put": "etag", "max_retries": str(_TRIES), "retry_timeout": f"{_REQUEST_SECONDS} seconds"}
        options |= {"connect_timeout": f"{_CONNECT_SECONDS} seconds", "timeout": f"{_REQUEST_SECONDS} seconds"}
        if self.endpoint:
            options |= {"aws_endpoint": self.endpoint, "aws_allow_http": str(self.endpoint.startswith("http://")).lower()}
        values = {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret, "aws_session_token": self.token}
        return options | {name: value for name, value in (values | {"aws_region": self.region}).items() if value}

    def hadoop_settings(self) -> dict[str, str]:
        """Settings of Hadoop without credentials; its S3A opens s3:// as well as s3a://, so that a path has one name everywhere."""
        settings = {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A"}
        settings |= {"fs.s3a.connection.establish.timeout": f"{_CONNECT_SECONDS}s", "fs.s3a.attempts.maximum": str(_FIRST_TRIES)}
        settings |= {"fs.s3a.retry.limit": str(_TRIES), "fs.s3a.connection.request.timeout": f"{_REQUEST_SECONDS}s"}
        if self.endpoint:
            # servers other than Amazon's seldom have a name for each bucket
            settings |= {"fs.s3a.endpoint": self.endpoint, "fs.s3a.path.style.access": "true"}
            settings[_ENCRYPTED] = str(not self.endpoint.startswith("http://")).lower()
        return settings | ({"fs.s3a.endpoint.region": self.region} if self.region else {})

    def hadoop_credentials(self) -> dict[str, str]:
        """Settings of Hadoop with the credentials."""
        values = {"fs.s3a.access.key": self.key, "fs.s3a.secret.key": self.secret, "fs.s3a.session.token": self.token}
        return {name: value for name, value in values.items() if value}


def is_s3(path: str) -> bool:
    """Whether a path is on S3: s3://, or Hadoop's name s3a://."""
    return _SCHEME.match(path) is not None


def s3_path(path: str) -> str:
    """A path on S3 by its one name, s3://."""
    return _SCHEME.sub(S3, path, count=1)


def s3_access() -> S3Access:
    """The endpoint, region and credentials of S3 of this process.

    Raises:
        ObjectStoreError: the profile that AWS_PROFILE names is missing.
    """
    said = os.environ
    of_profile = _profile(said.get("AWS_PROFILE"), *_profile_files())
    key, secret, token = (said.get(name) or None for name in _CREDENTIALS)
    if not (key and secret):
        key, secret, token = (of_profile.get(name.lower()) for name in _CREDENTIALS)
    endpoint = next((said[name] for name in _ENDPOINTS if said.get(name)), None) or of_profile.get("endpoint_url")
    region = next((said[name] for name in _REGIONS if said.get(name)), None) or of_profile.get("region")
    return S3Access(endpoint, region or (_ANY_REGION if endpoint else None), key, secret, token)


def require_keys(path: str) -> None:
    """Check that a lake on S3 can be written to with the credentials of this process: obstore knows keys and roles, but no profiles.

    Raises:
        ObjectStoreError: the profile has no keys, only a way to get some.
    """
    if s3_access().key is None:
        of_profile = _profile(os.environ.get("AWS_PROFILE"), *_profile_files())
        if how := next((name for name in _FETCHED if name in of_profile), None):
            raise ObjectStoreError(
                f"{path}: expected the keys {_KEY} and {_SECRET} of a process that writes to a lake on S3, found a profile with {how}; "
                "set both and, where they are temporary, " + _TOKEN
            )


def _profile_files() -> tuple[str, str]:
    folder = Path.home() / ".aws"
    return (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(folder / "credentials"),
        os.environ.get("AWS_CONFIG_FILE") or str(folder / "config"),
    )


@cache
def _profile(name: str | None, credentials: str, config: str) -> Mapping[str, str]:
    """The values of a profile in the two files of Amazon's tools; those of `default` if no name is given."""
    found: dict[str, str] = {}
    wanted = name or "default"
    for path, section in ((config, wanted if wanted == "default" else f"profile {wanted}"), (credentials, wanted)):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, "utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            # the message of a parser shows lines of the file
            raise ObjectStoreError(f"{path}: expected profiles of Amazon's tools, found {type(error).__name__}") from None
        if parser.has_section(section):
            values = dict(parser.items(section))
            if _KEY.lower() in values:  # keys and token of one file go together
                found = {name: value for name, value in found.items() if name.upper() not in _CREDENTIALS}
            found |= values
    if name and not found:
        raise ObjectStoreError(f"AWS_PROFILE={name}: expected a profile in {credentials} or {config}, found none of this name")
    return found


def take_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Set variables of this process to the settings fs.s3a.* that all libraries need; gives the other settings of Spark.

    The command line of a Java process, which every user of a machine can read, then has no credentials.

    Raises:
        ObjectStoreError: the settings have a part of the credentials only, or credentials of one bucket.
    """
    rest = dict(conf)
    if of_bucket := next((name for name in conf if _OF_BUCKET.match(name)), None):
        raise ObjectStoreError(f"--conf {of_bucket}: expected settings of all buckets, found one of a bucket; {_ANY_BUCKET}")
    given = {variable: _HADOOP + name for name, variable in _OF_HADOOP.items() if variable in _CREDENTIALS and conf.get(_HADOOP + name)}
    if given:
        if missing := [_HADOOP + name for name, variable in _OF_HADOOP.items() if variable in {_KEY, _SECRET} - given.keys()]:
            raise ObjectStoreError(f"--conf {next(iter(given.values()))}: expected {missing[0]} beside it, found none; give both")
        os.environ.pop(_TOKEN, None)  # it belongs to the keys of the environment
    for setting, variable in _OF_HADOOP.items():
        value = rest.pop(_HADOOP + setting, None)
        if value and setting == "fs.s3a.endpoint" and "://" not in value:
            value = f"{'http' if rest.get(_HADOOP + _ENCRYPTED) == 'false' else 'https'}://{value}"
        if value is not None:
            os.environ[variable] = value
    return rest


def without_secrets(conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of Spark that are no secrets of a file system, and the secrets by Hadoop's names."""
    secrets = {name: found["name"] for name in conf if (found := _SECRET_NAME.fullmatch(name))}
    rest = {name: value for name, value in conf.items() if name not in secrets}
    return rest, {given: conf[name] for name, given in secrets.items()}


def s3_filesystem(tries: int = _TRIES) -> pafs.S3FileSystem:
    """S3 as a file system of pyarrow."""
    return _filesystem(s3_access(), tries)


@cache
def _filesystem(access: S3Access, tries: int) -> pafs.S3FileSystem:
    scheme, _, host = (access.endpoint or "https://").rpartition("://")
    return pafs.S3FileSystem(
        access_key=access.key,
        secret_key=access.secret,
        session_token=access.token,
        region=access.region,
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme or "https",
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=tries),
        **_ONE_PUT,
    )


def require_bucket(path: str) -> None:
    """Check, within seconds, that S3 answers and that the bucket of a path on S3 can be listed.

    Raises:
        ObjectStoreError: S3 does not answer, refuses the credentials, or has no such bucket.
    """
    access = s3_access()
    bucket = s3_path(path).removeprefix(S3).partition("/")[0]
    if not bucket:
        raise ObjectStoreError(f"{path}: expected s3://BUCKET/PATH, found no bucket")
    if access.region is None:
        raise ObjectStoreError(f"{path}: expected the region of S3 in AWS_REGION, or in the profile of AWS_PROFILE, found none")
    try:
        s3_filesystem(_FIRST_TRIES).get_file_info(pafs.FileSelector(f"{bucket}/.pullsim-is-there"))
    except OSError as error:
        if fault := _fault(str(error), bucket, access):
            raise ObjectStoreError(f"{path}: {fault}") from error


def _fault(text: str, bucket: str, access: S3Access) -> str | None:
    """What an error of S3 means, in words for people; None for the error of a missing folder."""
    at = access.endpoint or f"Amazon's S3 in {access.region}"
    if "NETWORK_CONNECTION" in text:
        return f"expected S3 at {at}, found no answer; is the endpoint right?"
    if _NO_BUCKET.search(text):
        return f"expected a bucket {bucket} at {at}, found none; create it first"
    if _REFUSED.search(text) and access.key is None:
        return f"expected credentials for {at} in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in a profile, found none that it accepts"
    if _REFUSED.search(text):
        return f"expected credentials that {at} accepts for bucket {bucket}, found that it refuses the given ones"
    return f"expected a bucket that can be listed, found {text}" if "AWS Error" in text else None
