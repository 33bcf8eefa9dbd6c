"""Opens pull requests through GitHub's REST API, for the port `flow.ports.repositories.Repositories`.

All attempts at a pull request use the same branch, so a retry after a lost answer finds what was opened. Sources:
docs.github.com/rest, API version 2022-11-28: git/refs, repos/contents, pulls.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from bot.adapters.github.kept_file import ALREADY, edited_file
from bot.adapters.github.yaml_edit import NotEditableError
from bot.domain.changes.kept_in import KeptIn, file_of
from bot.domain.kernel.answer_reason import answer_reason
from bot.domain.kernel.errors import RepositoryError, SecretFileError
from bot.domain.kernel.finding import Finding, broken, fine
from bot.domain.kernel.links import safe_url
from bot.domain.kernel.retry_after import retry_after
from bot.domain.kernel.target import Target
from bot.flow.ports.repositories import Proposal

TIMEOUT_SECONDS = 10.0
MAX_REST_SECONDS = 60.0
API_VERSION = "2022-11-28"
PASSING = frozenset({408, 409, 425, 429})
"""409: somebody committed to the file at the same time."""


class PullRequests:
    def __init__(self, http: httpx.AsyncClient, url: str, token: Callable[[], str], files: Sequence[KeptIn]) -> None:
        """`url`: `https://api.github.com`, or `https://HOST/api/v3`. `token` is read for each request."""
        self._http, self._url, self._token, self._files = http, url.rstrip("/"), token, files

    def file_of(self, target: Target) -> str:
        """Returns the repository and the path, for people; empty if the settings name none for this target."""
        kept = file_of(target, self._files)
        return str(kept) if kept is not None else ""

    async def propose(self, proposal: Proposal) -> str:
        """Returns the address of the pull request. Raises `RepositoryError`."""
        kept = file_of(proposal.target, self._files)
        if kept is None:
            raise RepositoryError("the settings name no file for this target any more", lasting=True)
        repository = f"repos/{kept.repository}"
        owner = kept.repository.partition("/")[0]
        head = f"head={quote(f'{owner}:{proposal.branch}', safe='')}"
        if opened := await self._get(f"{repository}/pulls?state=all&{head}"):
            return _url_of(opened[0])
        base = _deployed(kept, await self._get(repository))
        await self._edit_on_branch(repository, base, kept, proposal)
        body = {"title": proposal.title, "body": proposal.body, "head": proposal.branch, "base": base}
        return _url_of(await self._send("POST", f"{repository}/pulls", body))

    async def _edit_on_branch(self, repository: str, base: str, kept: KeptIn, proposal: Proposal) -> None:
        """Commits the edit to the proposal's branch, unless an earlier attempt did."""
        ref = await self._get(f"{repository}/git/ref/heads/{quote(proposal.branch)}", absent_is_fine=True)
        held = await self._file(kept, proposal.branch if ref else base)
        try:
            text = edited_file(_text_of(held, kept), proposal.edit, kept)
        except NotEditableError as error:
            if ref and str(error) == ALREADY:
                return
            raise RepositoryError(f"{kept}: {error}", lasting=True) from error
        if not ref:
            tip = await self._get(f"{repository}/git/ref/heads/{quote(base)}")
            begun = {"ref": f"refs/heads/{proposal.branch}", "sha": str(_part(tip, "object", "sha"))}
            await self._send("POST", f"{repository}/git/refs", begun)
        content = base64.b64encode(text.encode()).decode()
        commit = {"message": proposal.title, "content": content, "sha": _part(held, "sha"), "branch": proposal.branch}
        await self._send("PUT", _contents(kept), commit)

    async def check(self) -> Sequence[Finding]:
        """Whether each file can be read and its repository can be written to."""
        return [await self._found(kept) for kept in self._files]

    async def _found(self, kept: KeptIn) -> Finding:
        remedy = "Correct github.files, or give the token the permissions contents and pull requests (read and write)."
        try:
            repository = await self._get(f"repos/{kept.repository}")
            may = repository.get("permissions") if isinstance(repository, Mapping) else None
            branch = _deployed(kept, repository)
            _text_of(await self._file(kept, branch), kept)
        except RepositoryError as error:
            return broken("github", f"{kept}: {error}", remedy)
        if isinstance(may, Mapping) and may.get("push") is False:
            return broken("github", f"{kept}: the token may not write to {kept.repository}", remedy)
        return fine("github", f"{kept} on {branch} is readable; pull requests are opened there")

    async def _file(self, kept: KeptIn, branch: str) -> Any:
        return await self._get(f"{_contents(kept)}?ref={quote(branch, safe='')}")

    async def _get(self, path: str, *, absent_is_fine: bool = False) -> Any:
        """The answer; None for a 404 where that is fine."""
        return await self._send("GET", path, absent_is_fine=absent_is_fine)

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, absent_is_fine: bool = False
    ) -> Any:
        try:
            headers = {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token()}",
                "X-GitHub-Api-Version": API_VERSION,
            }
            answer = await self._http.request(method, f"{self._url}/{path}", json=body, headers=headers)
        except SecretFileError as error:
            raise RepositoryError(f"the token: {error}", lasting=False) from error
        except httpx.HTTPError as error:
            raise RepositoryError(f"GitHub does not answer: {type(error).__name__}", lasting=False) from error
        if absent_is_fine and answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if not answer.is_success:
            raise _refused(answer, path)
        try:
            return answer.json()
        except ValueError as error:
            raise RepositoryError("what answers is not GitHub", lasting=False) from error


def _contents(kept: KeptIn) -> str:
    return f"repos/{kept.repository}/contents/{quote(kept.path)}"


def _deployed(kept: KeptIn, repository: Any) -> str:
    """The branch that is deployed."""
    return kept.branch or str(_part(repository, "default_branch"))


def _refused(answer: httpx.Response, path: str) -> RepositoryError:
    code = answer.status_code
    # GitHub answers 403 too where too many requests were sent; of its secondary limit only the text may speak, and its
    # documentation wants a minute then.
    says_limit = "rate limit" in answer.text.lower()
    is_limit = code == httpx.codes.FORBIDDEN and (
        says_limit or "Retry-After" in answer.headers or answer.headers.get("X-RateLimit-Remaining") == "0"
    )
    otherwise = MAX_REST_SECONDS if is_limit and says_limit else 0.0
    rest = retry_after(answer.headers.get("Retry-After", ""), otherwise=otherwise, at_most=MAX_REST_SECONDS)
    lasting = code < 500 and code not in PASSING and not is_limit
    where = path.partition("?")[0]
    return RepositoryError(
        f"GitHub answers HTTP {code} to {where}: {answer_reason(answer.text)}",
        lasting=lasting,
        retry_after_seconds=rest,
    )


def _part(answer: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(answer, Mapping) or name not in answer:
            raise RepositoryError("what answers is not GitHub", lasting=False)
        answer = answer[name]
    return answer


def _url_of(opened: Any) -> str:
    if url := safe_url(str(_part(opened, "html_url"))):
        return url
    raise RepositoryError("GitHub gives the pull request no address that a browser opens", lasting=True)


def _text_of(held: Any, kept: KeptIn) -> str:
    """The text of a file. A folder is a list, and a file of more than a megabyte comes without its text."""
    if isinstance(held, list):
        raise RepositoryError(f"{kept} is a folder", lasting=True)
    if isinstance(held, Mapping) and held.get("encoding") != "base64":
        raise RepositoryError(f"{kept} is no file, or one of more than a megabyte", lasting=True)
    try:
        return base64.b64decode(str(_part(held, "content"))).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise RepositoryError(f"{kept} is not a text", lasting=True) from error
