"""The address of a runbook's step is a link only if it is safe in every format that shows it."""

from __future__ import annotations

import pytest

from bot.domain.kernel.runbook import Runbook

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("url", ["https://wiki.example/kv#3.2", "http://wiki/a?b=1&c=(d)", "https://wiki/ページ"])
def test_an_address_of_the_web_is_a_link(url: str) -> None:
    assert Runbook(step="3.2", url=url).link == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "wiki/kv",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://wiki/a b",
        "https://wiki/>x<",
        'https://wiki/"x',
        "https://wiki/a|b",
        "https://wiki/\u202eabc",
        "https://wiki/\n",
    ],
)
def test_any_other_address_is_none(url: str) -> None:
    assert Runbook(step="3.2", url=url).link == ""
