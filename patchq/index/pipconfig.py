"""Where packages come from: the user's own pip configuration, asked of pip itself."""

from __future__ import annotations

import ast
import os
import ssl
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from patchq.errors import Prevented
from patchq.process import run

# pip lets the section of its command win over `global`, and the environment over both.
_SECTIONS = ("global", "download", ":env:")
_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class PipConfig:
    """What pip would use to find and download files; `index_url` is None where pip's default index holds."""

    index_url: str | None = None
    use_index: bool = True
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    proxy: str | None = None
    ca_bundle: str | None = None
    client_cert: str | None = None
    timeout: float = 15.0

    def tls(self) -> ssl.SSLContext | bool:
        """The context for HTTPS; True where the library's own default trust is to be used."""
        if not self.ca_bundle and not self.client_cert:
            return True
        try:
            context = _trust(self.ca_bundle)
            if self.client_cert:
                context.load_cert_chain(self.client_cert)
        except OSError as error:
            hint = "see `python -m pip config debug`"
            raise Prevented(f"the certificates of pip's configuration cannot be read: {error}", hint=hint) from error
        return context


@cache
def pip_config() -> PipConfig:
    """The configuration that `python -m pip` reports: files, sections and `PIP_*` variables, merged by pip.

    Raises `Prevented` where pip is missing or cannot read its configuration.
    """
    outcome = run([sys.executable, "-m", "pip", "config", "list"])
    if not outcome.ok:
        complaint = outcome.error_text.splitlines()[-1:] or ["it said nothing"]
        hint = "patchq finds packages by pip's configuration: try `python -m pip config list`"
        raise Prevented(f"pip cannot list its configuration: {complaint[0]}", hint=hint)
    return from_options(_merge(outcome.text.splitlines()), os.environ)


def from_options(options: Mapping[str, str], environ: Mapping[str, str]) -> PipConfig:
    """`PipConfig` from pip's option names; `environ` gives the CA bundle where they do not."""
    timeout = options.get("timeout", options.get("default-timeout", "15"))
    return PipConfig(
        index_url=options.get("index-url") or options.get("pypi-url") or None,
        use_index=options.get("no-index", "").lower() not in ("1", "true", "yes", "on", "y", "t"),
        extra_index_urls=tuple(options.get("extra-index-url", "").split()),
        find_links=tuple(map(_place, options.get("find-links", "").split())),
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
        proxy=_proxy(options.get("proxy", "")),
        ca_bundle=options.get("cert") or next((environ[v] for v in _CA_VARIABLES if environ.get(v)), None),
        client_cert=options.get("client-cert") or None,
        timeout=float(timeout) if timeout.replace(".", "", 1).isdigit() else 15.0,
    )


def _merge(lines: Iterable[str]) -> dict[str, str]:
    """Options from lines `SECTION.NAME='VALUE'`, in which pip quotes values as Python does."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in lines:
        key, _, quoted = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in by_section and quoted:
            by_section[section][name.strip()] = str(ast.literal_eval(quoted))
    return {name: value for section in _SECTIONS for name, value in by_section[section].items()}


def _trust(bundle: str | None) -> ssl.SSLContext:
    if bundle and Path(bundle).is_dir():
        return ssl.create_default_context(capath=bundle)
    return ssl.create_default_context(cafile=bundle)


def _place(link: str) -> str:
    """A find-links entry as an address; like pip, what exists on this disk is a path."""
    path = Path(os.path.expanduser(link))  # noqa: PTH111 - as pip does: a user that is not there stays a name
    return path.absolute().as_uri() if "://" not in link and path.exists() else link


def _proxy(value: str) -> str | None:
    return (value if urlsplit(value).scheme and "://" in value else f"http://{value}") if value else None
