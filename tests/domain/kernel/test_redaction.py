"""Which values are masked, and which must stay readable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.kernel import redaction
from bot.domain.kernel.redaction import MASK, is_secret_name, redacted, redacted_data, shown_value

pytestmark = pytest.mark.fast

SECRET = "s3cr3t-Value"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "hfToken",
        "AWS_SECRET_ACCESS_KEY",
        "--api-key",
        "apiKey",
        "DB_PASSWORD",
        "KEY",
        "Authorization",
        "DB_PASS",
        "PGPASSWORD",
        "MYSQL_PWD",
        "JWT",
        "SESSION_COOKIE",
        "_authToken",
        ".dockerconfigjson",
        "dbpassword",
    ],
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
        "bytes_per_token",
        "limits.bytes_per_token",
        "time_per_output_token",
        "timeToFirstToken",
        "eos_token",
        "max_tokens",
        "cacheKey",
        "PGPASSFILE",
        "bypass",
        "compass",
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
        pytest.param(f"args:\n- --api-key\n- {SECRET}\n- --seed\n- 1", id="list-in-yaml"),
        pytest.param(f'"args": [\n    "--api-key",\n    "{SECRET}",\n    "--seed"\n]', id="list-in-json"),
        pytest.param(f"--api_key '{SECRET}'", id="quoted-option"),
        pytest.param(f"['--api-key', '{SECRET}', '--seed']", id="printed-list"),
        pytest.param(f"Authorization: Bearer {SECRET}", id="header"),
        pytest.param(f"redis://user:{SECRET}@redis:6379/0", id="url"),
        pytest.param(f"https://:{SECRET}@host/x", id="url-without-user"),
        pytest.param(f"hf_{SECRET.replace('-', '')}", id="hugging-face"),
        pytest.param(f"xoxb-12-{SECRET}", id="slack"),
        pytest.param(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----", id="pem"),
        pytest.param(f"DB_PASS={SECRET} ./run", id="pass"),
        pytest.param(f"PASS={SECRET} ./run", id="only-pass"),
        pytest.param(f"PGPASSWORD={SECRET} psql", id="run-together"),
        pytest.param(f"JWT={SECRET}", id="jwt"),
        pytest.param(f"Cookie: session=abc; id={SECRET}", id="cookie"),
        pytest.param(f"set-cookie: id={SECRET}; Path=/", id="set-cookie"),
        pytest.param(f"curl -H 'Cookie: id={SECRET}' https://host", id="cookie-option"),
        pytest.param(f"curl -u admin:{SECRET} https://host", id="curl-user"),
        pytest.param(f"curl --user=admin:{SECRET} https://host", id="curl-long-user"),
        pytest.param(f"curl -u 'admin:{SECRET}' https://host", id="curl-quoted-user"),
        pytest.param(f"['curl', '-u', 'admin:{SECRET}']", id="curl-user-in-a-list"),
        pytest.param(f"Authorization: Token {SECRET}", id="other-scheme"),
        pytest.param(f"Authorization: Basic {SECRET}", id="basic"),
        pytest.param(f"https://hooks.slack.com/services/T000/B000/{SECRET}", id="slack-webhook"),
        pytest.param(f"<https://hooks.slack.com/triggers/T1/2/{SECRET}|hook>", id="slack-trigger"),
        pytest.param(f"//registry.npmjs.org/:_authToken={SECRET}", id="npm"),
        pytest.param(f"https://{SECRET}{SECRET}@github.com/x", id="token-as-user"),
        pytest.param(f'command="HF_TOKEN={SECRET} vllm serve"', id="within-another-value"),
        pytest.param(f'{{\\"password\\": \\"{SECRET}\\"}}', id="json-in-json"),
        pytest.param(f'"password": "{SECRET} and more, cut off', id="cut-off-string"),
        pytest.param(f'token="{SECRET}, it\'s more"', id="long-string"),
        pytest.param(f"non-default args: {{'api_key': ['{SECRET}', '{SECRET}'], 'port': 1}}", id="vllm-arguments"),
        pytest.param(f"Namespace(api_key=['{SECRET}'], port=8000)", id="namespace"),
        pytest.param(f'{{"name":"HF_TOKEN","value":"{SECRET}"}}', id="variable-in-json"),
        pytest.param(f'{{\\"name\\":\\"HF_TOKEN\\",\\"value\\":\\"{SECRET}\\"}}', id="variable-in-json-in-json"),
        pytest.param(f"- name: HF_TOKEN\n  value: {SECRET}", id="variable-in-yaml"),
        pytest.param(f'Invalid value: core.EnvVar{{Name:"HF_TOKEN", Value:"{SECRET}"}}', id="variable-in-go"),
        pytest.param(f"api_key: |-\n  {SECRET}\n", id="yaml-block"),
        pytest.param(f"redis://:a@b{SECRET}@redis:6379", id="url-with-at-in-the-password"),
        pytest.param(f"s3.example/m?X-Amz-Date=1&X-Amz-Signature={SECRET}", id="signed-url-of-s3"),
        pytest.param(f"blob.core.windows.net/m?sp=r&sig={SECRET}&sv=1", id="signed-url-of-azure"),
        pytest.param(f"storage.googleapis.com/m?X-Goog-Signature={SECRET}", id="signed-url-of-google"),
        pytest.param(f"client-key-data: {SECRET}", id="kubeconfig"),
        pytest.param(f"ghr_{SECRET.replace('-', '')}", id="github-refresh"),
        pytest.param(f"xoxd-{SECRET}", id="slack-cookie"),
        pytest.param(f"sk_test_{SECRET.replace('-', '')}", id="stripe-test"),
        pytest.param(f"whsec_{SECRET}{SECRET}", id="signed-webhooks"),
        pytest.param(f"GOCSPX-{SECRET}{SECRET}", id="google-client"),
        pytest.param(f"https://api.telegram.org/bot12345678:{SECRET}/sendMessage", id="telegram"),
        pytest.param(f"Server=db;Uid=llm;Pwd={SECRET};Encrypt=yes", id="connection"),
        pytest.param(f"glrt-{SECRET}", id="gitlab-runner"),
        pytest.param(f"api_org_{SECRET.replace('-', '')}", id="hugging-face-organization"),
        pytest.param(f"dckr_pat_{SECRET}", id="docker"),
        pytest.param(f"vllm serve m --api-key {SECRET} {SECRET} --port 8000", id="several-keys"),
        pytest.param(f"['--api-key','{SECRET}', '{SECRET}', '--port']", id="several-keys-in-a-list"),
        pytest.param(f"mysqldump -h db -p{SECRET} llm", id="mysql"),
        pytest.param(f"redis-cli -h redis -a {SECRET} ping", id="redis-cli"),
        pytest.param(f"sshpass -p '{SECRET}' ssh host", id="sshpass"),
        pytest.param(f"docker login -u bob -p {SECRET} registry", id="docker-login"),
        pytest.param(f"wandb login --relogin {SECRET}{SECRET}{SECRET}", id="wandb-login"),
        pytest.param(f"abc8Q~{SECRET}{SECRET}", id="azure-client-secret"),
        pytest.param(f"xai-{SECRET.replace('-', '') * 2}", id="xai"),
        pytest.param(f"lsv2_pt_{SECRET.replace('-', '') * 2}", id="langsmith"),
        pytest.param(f"dop_v1_{SECRET.replace('-', '') * 2}", id="digital-ocean"),
        pytest.param(f"ATATT3{SECRET}{SECRET}", id="atlassian"),
        pytest.param(f"hvs.CAESI{SECRET}{SECRET}", id="vault"),
        pytest.param(f"ya29.{SECRET}{SECRET}", id="google"),
        pytest.param(f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}\n-----END PGP PRIVATE KEY BLOCK-----", id="pgp"),
    ],
)
def test_a_secret_in_a_text_is_masked(text: str) -> None:
    shown = redacted(text)
    assert SECRET not in shown
    assert SECRET.replace("-", "") not in shown
    assert MASK in shown
    assert redacted(shown) == shown


def test_a_token_of_letters_is_masked_where_it_is_assigned() -> None:
    assert redacted("https://host/?token=correcthorse") == f"https://host/?token={MASK}"
    assert MASK in redacted("token: 1234567abcdefghijkl")


@pytest.mark.parametrize("after", ["", "-2", " was used"])
def test_a_databricks_token_is_masked(after: str) -> None:
    assert redacted(f"dapi0123456789abcdef0123456789abcdef{after}").startswith(MASK)


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
        "limits.bytes_per_token: 131072",
        "time_per_output_token=0.034 max_tokens=512 tokens: 9000",
        "time to first token: 5.2 s, per token: 41ms",
        "first token: unknown, of 262k per token: 1.5MiB/s",
        "3 of 5 checks pass: yes",
        "PWD=/workspace/vllm",
        "auth: enabled, auth=basic",
        "docker run -u 1000:1000 image",
        "Basic authentication is off; basic questions first",
        "the bearer tokens are rotated",
        "git@github.com:vllm-project/vllm.git https://github.com/vllm-project/vllm",
        "eos_token='</s>' pad_token: none",
        "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks",
        "https://incidents.example.com/incidents/INC-7?until=1800000000&signature=0a1b2c",
        '{"name":"VLLM_PORT","value":"8000"} - name: token_ids\n  value: 3',
        "certificate-authority-data: LS0t",
        "eyJhbGci is cut off",
        "--api-key $KEY $OTHER --port 8000",
        "mysql -p llm; mysqladmin --port 3306 -P3306",
        "docker run -p 8000:8000 image; docker login -u bob; redis-cli -h redis",
        "Run wandb login to authenticate",
        "dapi is no token, and 0123456789abcdef0123456789abcdef is a hash",
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
        pytest.param({"api_key": [SECRET], "stop_token": ["x"]}, {"api_key": [MASK], "stop_token": ["x"]}, id="list"),
        pytest.param({"a": {"password": SECRET}}, {"a": {"password": MASK}}, id="nested"),
        pytest.param(
            {"auths": {"registry": {"auth": "YWRtaW46czNjcjN0"}}, "auth": "enabled"},
            {"auths": {"registry": {"auth": MASK}}, "auth": "enabled"},
            id="docker",
        ),
        pytest.param({"bytes_per_token": "131072"}, {"bytes_per_token": "131072"}, id="a-size"),
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


HOSTILE = (
    "--x ", " ", "a=", "token: ", "'", '"', "://", "\\", "eyJ", "-eyJ", "eyJ" + "a" * 12 + ".", "token=\"", "token='",
    "token=\\\"", "-u ", "-u a", "Bearer ", "Basic  ", "://a:", "Cookie:", "-----BEGIN PRIVATE KEY-----",
    "hooks.slack.com/services/", "a-", "--", "auth=", "PASS=", "_", "sk-", "xoxb-", "\n", "Authorization",
    "api_key=[", "name: token value: ", 'name:"a",value:"', "name: a ", "?sig=", "&sig", "api_key: |\n", "://a:@",
)  # fmt: skip


@pytest.mark.parametrize("after", ["", '"'])
@pytest.mark.parametrize("unit", HOSTILE)
def test_a_long_line_of_anything_is_masked_quickly_enough_to_finish(unit: str, after: str) -> None:
    redacted((unit + after) * (60_000 // len(unit + after)))


@given(st.lists(st.sampled_from([*"abPASSWORD_-/.@'\"\\1 =:\n", "token", "-u ", "--api-key ", "Cookie"]), max_size=40))
def test_no_pattern_finds_anything_in_a_text_without_the_sign_that_it_needs(parts: list[str]) -> None:
    text = "".join(parts)
    if ":" not in text:
        assert all(pattern.search(text) is None for pattern in (redaction._HEADER, redaction._USER, redaction._IN_URL))
    if "--" not in text:
        assert redaction._without_values(text, redaction._OPTION, redaction._AFTER_OPTION) == text
    if ":" not in text and "=" not in text:
        assert redaction._without_values(text, redaction._NAME, redaction._AFTER_NAME) == text


@given(st.from_regex(redaction._VALUES) | st.from_regex(redaction._WEBHOOK))
def test_only_databricks_tokens_that_show_by_themselves_are_all_small_letters_and_digits(text: str) -> None:
    assert not (text.isalnum() and text.islower()) or text.startswith("dapi")
    assert MASK in redacted(text)
