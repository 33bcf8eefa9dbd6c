"""GitHub's REST API, as far as the bot uses it: one repository with text files, branches and pull requests.

As the real one: a branch that exists is refused with 422, as is a second pull request of a branch and one without a
commit; a commit has to name the file's present blob, else 409; an unknown path, branch or repository is 404, and so is
everything without permission to read; a wrong token is 401.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

from aiohttp import web

MAIN = "main"
MAX_CHARACTERS = 1_000_000
"""A larger file is listed without its text."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Fault:
    """`count` requests are refused, after as many others; with `lost` they are done, and their answers never arrive."""

    status: int = 503
    count: int = 1
    after: int = 0
    lost: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "a fault"


@dataclass
class PullRequest:
    number: int
    title: str
    body: str
    head: str
    base: str
    before: dict[str, str]
    """The files of its base when it was opened."""
    state: str = "open"


@dataclass
class Repository:
    """`branches`: name to path to text."""

    name: str
    token: str
    files: dict[str, str] = field(default_factory=dict)
    may_push: bool = True
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    pulls: list[PullRequest] = field(default_factory=list)
    commits: list[tuple[str, str]] = field(default_factory=list)
    """Branch and message, oldest first."""
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.branches.setdefault(MAIN, dict(self.files))

    def next_fault(self) -> Fault | None:
        if not self.faults:
            return None
        if self.faults[0].after:
            self.faults[0].after -= 1
            return None
        self.faults[0].count -= 1
        return self.faults[0] if self.faults[0].count else self.faults.pop(0)

    def merge(self, number: int) -> None:
        pull = self.pulls[number - 1]
        self.branches[pull.base] |= self.branches[pull.head]
        pull.state = "closed"

    @property
    def deployed(self) -> dict[str, str]:
        return self.branches[MAIN]


class GitHubRoutes:
    def __init__(self, repository: Repository, merged: Callable[[], Awaitable[None]] | None = None) -> None:
        """`merged` is called after each merge."""
        self._of, self._after_merge = repository, merged

    def routes(self) -> list[web.RouteDef]:
        root, guarded = f"/repos/{self._of.name}", self._guarded
        return [
            web.get(root, guarded(self._described)),
            web.get(f"{root}/git/ref/heads/{{branch:.+}}", guarded(self._ref)),
            web.post(f"{root}/git/refs", guarded(self._branched)),
            web.get(f"{root}/contents/{{path:.+}}", guarded(self._content)),
            web.put(f"{root}/contents/{{path:.+}}", guarded(self._committed)),
            web.get(f"{root}/pulls", guarded(self._pulls)),
            web.post(f"{root}/pulls", guarded(self._opened)),
            web.get(f"/{self._of.name}/pull/{{number}}", self._page),
            web.post(f"/{self._of.name}/pull/{{number}}/merge", self._merged),
            web.put("/__sandbox__/github/{path:.+}", self._put),
        ]

    async def _described(self, request: web.Request) -> web.StreamResponse:
        permissions = {"pull": True, "push": self._of.may_push}
        return _answer({"default_branch": MAIN, "permissions": permissions})

    async def _ref(self, request: web.Request) -> web.StreamResponse:
        branch = request.match_info["branch"]
        if branch not in self._of.branches:
            return _answer(NOT_FOUND, 404)
        return _answer({"ref": f"refs/heads/{branch}", "object": {"sha": _sha(branch)}})

    async def _branched(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        branch = str(asked["ref"]).removeprefix("refs/heads/")
        if branch in self._of.branches:
            return _answer({"message": "Reference already exists"}, 422)
        base = next((name for name in self._of.branches if _sha(name) == asked["sha"]), None)
        if base is None:
            return _answer({"message": "Object does not exist"}, 422)
        self._of.branches[branch] = dict(self._of.branches[base])
        return _answer({"ref": asked["ref"]}, 201)

    async def _content(self, request: web.Request) -> web.StreamResponse:
        branch, path = request.query.get("ref", MAIN), request.match_info["path"]
        files = self._of.branches.get(branch, {})
        if any(name.startswith(f"{path}/") for name in files):
            return _answer([{"name": "a file"}])
        if path not in files:
            return _answer(NOT_FOUND, 404)
        if len(files[path]) > MAX_CHARACTERS:
            return _answer({"content": "", "encoding": "none", "sha": _sha(files[path])})
        # Wrapped after 60 characters, as the real one does.
        content = base64.encodebytes(files[path].encode()).decode()
        return _answer({"content": content, "encoding": "base64", "sha": _sha(files[path])})

    async def _committed(self, request: web.Request) -> web.StreamResponse:
        asked, path = await request.json(), request.match_info["path"]
        files = self._of.branches.get(str(asked["branch"]))
        if files is None:
            return _answer(NOT_FOUND, 404)
        if asked.get("sha") != _sha(files[path]):
            return _answer({"message": f"{path} does not match {asked.get('sha')}"}, 409)
        files[path] = base64.b64decode(asked["content"]).decode()
        self._of.commits.append((str(asked["branch"]), str(asked["message"])))
        return _answer({"content": {"path": path}})

    async def _pulls(self, request: web.Request) -> web.StreamResponse:
        owner, _, branch = request.query.get("head", "").partition(":")
        found = [self._shown(request, pull) for pull in self._of.pulls if pull.head == branch]
        return _answer(found if self._of.name.startswith(f"{owner}/") else [])

    async def _opened(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        head, base = str(asked["head"]), str(asked["base"])
        why = ""
        if any(pull.head == head and pull.state == "open" for pull in self._of.pulls):
            why = f"A pull request already exists for {head}."
        elif head not in self._of.branches or self._of.branches[head] == self._of.branches.get(base):
            why = f"No commits between {base} and {head}"
        if why:
            return _answer({"message": "Validation Failed", "errors": [{"message": why}]}, 422)
        pull = PullRequest(
            len(self._of.pulls) + 1, str(asked["title"]), str(asked["body"]), head, base, dict(self._of.branches[base])
        )
        self._of.pulls.append(pull)
        return _answer(self._shown(request, pull), 201)

    def _shown(self, request: web.Request, pull: PullRequest) -> dict[str, Any]:
        url = f"{request.url.origin()}/{self._of.name}/pull/{pull.number}"
        return {"number": pull.number, "state": pull.state, "html_url": url}

    def _guarded(self, handle: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Authorization") != f"Bearer {self._of.token}":
                return web.json_response({"message": "Bad credentials"}, status=401)
            if request.method != "GET" and not self._of.may_push:
                return web.json_response({"message": "Resource not accessible by personal access token"}, status=403)
            fault = self._of.next_fault()
            if fault is not None and not fault.lost:
                return web.json_response({"message": fault.message}, status=fault.status, headers=fault.headers)
            answered = await handle(request)
            if fault is not None and request.transport is not None:
                request.transport.close()
            return answered

        return answer

    async def _put(self, request: web.Request) -> web.StreamResponse:
        """What was committed long ago."""
        self._of.deployed[request.match_info["path"]] = await request.text()
        return web.Response(status=204)

    # --- for people -------------------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.StreamResponse:
        pull = self._of.pulls[int(request.match_info["number"]) - 1]
        lines = [
            line
            for path, text in self._of.branches[pull.head].items()
            for line in unified_diff(pull.before.get(path, "").splitlines(), text.splitlines(), path, path, lineterm="")
        ]
        merge = f'<form method="post" action="{request.path}/merge"><button>Merge pull request</button></form>'
        page = PAGE.format(
            title=html.escape(f"{pull.title} #{pull.number}"),
            body=html.escape(pull.body),
            diff=html.escape("\n".join(lines)),
            foot=merge if pull.state == "open" else "<p><strong>Merged.</strong></p>",
        )
        return web.Response(text=page, content_type="text/html")

    async def _merged(self, request: web.Request) -> web.StreamResponse:
        self._of.merge(int(request.match_info["number"]))
        if self._after_merge is not None:
            await self._after_merge()
        raise web.HTTPSeeOther(request.path.removesuffix("/merge"))


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
pre {{ background: #f6f8fa; padding: 1em; overflow-x: auto; white-space: pre-wrap }}
button {{ font: inherit; color: #fff; background: #1a7f37; border: 0; border-radius: 6px; padding: .5em 1em }}
</style>
<h1>{title}</h1>
<pre>{body}</pre>
<pre>{diff}</pre>
{foot}
</html>
"""
NOT_FOUND = {"message": "Not Found"}


def _answer(body: Any, status: int = 200) -> web.StreamResponse:
    return web.json_response(body, status=status)


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
