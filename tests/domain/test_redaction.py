"""What is masked, and what has to stay readable."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.redaction import MASK, is_secret_name, redacted, redacted_data, shown_value

pytestmark = pytest.mark.fast

SECRET = "s3cr3t-Value"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hfToken", "AWS_SECRET_ACCESS_KEY", "--api-key", "apiKey", "DB_PASSWORD", "KEY", "Authorization"],
)
def test_a_name_that_says_secret_is_one(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "--max-num-batched-tokens",
        "--long-prefill-token-threshold",
        "kv_cache_size_tokens",
        "HF_TOKEN_PATH",
        "secretName",
        "--ssl-keyfile",
        "MONKEY",
        "tokenizer",
        "--skip-tokenizer-init",
        "",
    ],
)
def test_a_name_that_only_sounds_like_it_is_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"HF_TOKEN={SECRET} vllm serve m", id="assignment"),
        pytest.param(f"'api_key': '{SECRET}'", id="python-dict"),
        pytest.param(f'{{"password": "{SECRET}"}}', id="json"),
        pytest.param(f"--api-key {SECRET} --seed 1", id="option"),
        pytest.param(f"--api-key={SECRET}", id="joined-option"),
        pytest.param(f"--api_key '{SECRET}'", id="quoted-option"),
        pytest.param(f"['--api-key', '{SECRET}', '--seed']", id="printed-list"),
        pytest.param(f"Authorization: Bearer {SECRET}", id="header"),
        pytest.param(f"redis://user:{SECRET}@redis:6379/0", id="url"),
        pytest.param(f"https://:{SECRET}@host/x", id="url-without-user"),
        pytest.param(f"hf_{SECRET.replace('-', '')}", id="hugging-face"),
        pytest.param(f"xoxb-12-{SECRET}", id="slack"),
        pytest.param(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----", id="pem"),
    ],
)
def test_a_secret_in_a_text_is_masked(text: str) -> None:
    shown = redacted(text)
    assert SECRET not in shown
    assert SECRET.replace("-", "") not in shown
    assert MASK in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "--max-num-seqs 64 → 6",
        "--max-num-batched-tokens 8192 --seed 1",
        "non-default args: {'max_num_seqs': 64, 'pad_token_id': 3}",
        "--hf-token $HF_TOKEN --api-key=$(API_KEY)",
        "http://127.0.0.1:8000/metrics",
        "sha256: 0f3a",
        "llm-7: label serving active → drained",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        pytest.param(
            {"env": [{"name": "HF_TOKEN", "value": SECRET}, {"name": "A", "value": "b"}]},
            {"env": [{"name": "HF_TOKEN", "value": MASK}, {"name": "A", "value": "b"}]},
            id="env",
        ),
        pytest.param(["--api-key", SECRET, SECRET, "--seed", "1"], ["--api-key", MASK, MASK, "--seed", "1"], id="args"),
        pytest.param({"a": {"password": SECRET}}, {"a": {"password": MASK}}, id="nested"),
        pytest.param({"max_tokens": 5, "on": True, "none": None}, {"max_tokens": 5, "on": True, "none": None}, id="no"),
        pytest.param(
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
            id="a-reference-says-nothing",
        ),
    ],
)
def test_structures_are_masked_by_field_pair_and_option(data: Any, shown: Any) -> None:
    before = repr(data)
    assert redacted_data(data) == shown
    assert repr(data) == before


def test_an_absent_secret_still_reads_as_absent() -> None:
    assert shown_value("HF_TOKEN", None) is None
    assert shown_value("HF_TOKEN", SECRET) == MASK
    assert shown_value("LOG_LEVEL", "debug") == "debug"


def test_a_long_line_of_anything_is_masked_quickly_enough_to_finish() -> None:
    for unit in ("--x ", " ", "a=", "token: ", "'", '"', "://", "\\", "eyJ"):
        redacted(unit * 20_000)
