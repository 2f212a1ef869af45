"""The places where the user's pip looks for files, searched one after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, cast

from patchq.errors import Prevented
from patchq.index.pipconfig import pip_config

if TYPE_CHECKING:
    from unearth import Link, Package, PackageFinder
    from unearth.fetchers import Fetcher

# The libraries that speak HTTP take a third of a second to import, so only functions that go out do it.

_PIECE = 1 << 18


class Search:
    """One search for `wanted`, remembering why a source gave nothing.

    A source that cannot be reached does not matter where another has the file; otherwise it is the reason.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._complaints = _Complaints()

    def __enter__(self) -> Search:
        logging.getLogger("unearth").addHandler(self._complaints)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("unearth").removeHandler(self._complaints)

    def packages(self, name: str) -> Iterator[Package]:
        """All files of a project, whatever Python or platform they are for, source after source."""
        for finder in _finders():
            yield from self._ask(finder, name)

    def _ask(self, finder: PackageFinder, name: str) -> Iterator[Package]:
        try:
            yield from finder.find_all_packages(name, allow_yanked=True)
        except Exception as error:  # whatever a foreign server makes a foreign parser raise
            self._complaints.add(error)

    def read(self, link: Link, sink: Callable[[bytes], object]) -> bool:
        """Hand the bytes behind `link` to `sink`; False, the reason remembered, where it breaks off."""
        from unearth.preparer import HTTPErrors

        broken: tuple[type[Exception], ...] = (*HTTPErrors, ConnectionError)
        try:
            with _session().get_stream(link.normalized) as response:
                if response.status_code >= 400:
                    raise ConnectionError(f"{link.filename}: the index answers {response.status_code}")
                for piece in response.iter_bytes(_PIECE):
                    sink(piece)
        except broken as error:
            self._complaints.add(error)
            return False
        return True

    def nothing(self, hint: str = "") -> Prevented:
        """The error to raise when nothing was found; `hint` is for the case that every source answered."""
        where = "see `python -m pip config list` for where packages are looked for"
        if not self._complaints.said:
            return Prevented(f"{self._wanted}: no configured package index has it", hint=hint or where)
        reasons = "; ".join(dict.fromkeys(self._complaints.said))
        return Prevented(f"{self._wanted}: not found, and not every package index answered: {reasons}", hint=where)


class _Complaints(logging.Handler):
    """What the library only logs: sources that answer with an error. That a project is unknown is none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def add(self, error: Exception) -> None:
        self.said.append(str(error) or type(error).__name__)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.name == "unearth.collector" and "Client Error(404)" not in message:
            self.said.append(message)


@cache
def _session() -> Fetcher:
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    config = pip_config()
    session = PyPIClient(
        trusted_hosts=config.trusted_hosts,
        verify=config.tls(),
        timeout=config.timeout,
        proxy=config.proxy,
        follow_redirects=True,
    )
    indexes = [url for url in (config.index_url, *config.extra_index_urls) if url]
    session.auth = MultiDomainBasicAuth(prompting=False, index_urls=indexes)
    return cast("Fetcher", session)  # its annotations do not quite fit their own protocol


@cache
def _finders() -> tuple[PackageFinder, ...]:
    """One finder a source, those that may be on this disk first, so that a dead one hides no other."""
    config = pip_config()
    finders = [_finder(find_links=(link,)) for link in config.find_links]
    if config.use_index:
        # Given no source at all, the library takes the index that pip takes by default, too.
        finders.append(_finder(index_urls=(config.index_url,) if config.index_url else ()))
        finders.extend(_finder(index_urls=(url,)) for url in config.extra_index_urls)
    return tuple(finders)


def _finder(index_urls: tuple[str, ...] = (), find_links: tuple[str, ...] = ()) -> PackageFinder:
    from unearth import PackageFinder

    return PackageFinder(
        _session(),
        index_urls=index_urls,
        find_links=find_links,
        trusted_hosts=pip_config().trusted_hosts,
        ignore_compatibility=True,
    )
