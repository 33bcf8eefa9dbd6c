"""Redacts what not every reader of a difference, a log line or a report may see: one rule for all of them.

A secret name hides its value, and a value that looks like a secret is hidden whatever its name. Only copies are
redacted: the plan that is applied keeps every character.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

MASK = "(masked)"

# --- names ------------------------------------------------------------------------------------------------------------

_ENDS_SECRET = ("token", "key", "apikey", "accesskey", "secretkey", "pat", "pass", "pwd", "jwt", "cookie")
_IS_SECRET = ("secret", "secrets", "credential", "credentials", "authorization", "dockerconfigjson", "dockercfg")
_WITHIN = ("password", "passwd", "passphrase", "authtoken", "accesstoken", "apikey", "secretkey")
"""Also as the end of a longer word: `PGPASSWORD`."""
_ONLY_REFERS = ("name", "file", "path", "dir", "ref", "names", "keyfile", "url", "id", "count")
"""`HF_TOKEN_PATH` and `secretName` name where a secret is, not the secret."""
_COUNTED = ("per", "first", "next", "input", "output", "prompt", "inter")
_IN_A_VOCABULARY = ("bos", "eos", "pad", "unk", "sep", "cls", "mask", "stop", "special", "image", "audio", "video")
_PLAIN_KEYS = ("cache", "sort", "partition", "primary", "foreign", "public", "label", "annotation", "taint")
_OF_A_SENTENCE = ("key", "pat", "pass", "pwd")
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a variable, flag or field of this name holds a secret: HF_TOKEN does, --max-num-batched-tokens not."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    if not parts or parts[-1] in _ONLY_REFERS:
        return False
    before = parts[-2] if len(parts) > 1 else ""
    if parts[-1] == "token" and before in (*_COUNTED, *_IN_A_VOCABULARY):
        return False
    if parts[-1] == "key" and before in _PLAIN_KEYS:
        return False
    if parts[-2:] == ["key", "data"]:  # of a kubeconfig
        return True
    return parts[-1] in _ENDS_SECRET or any(part in _IS_SECRET or part.endswith(_WITHIN) for part in parts)


@functools.lru_cache(maxsize=4096)
def is_written_secret(name: str) -> bool:
    """In running text only unambiguous names count: `key: 5` in a sentence is not a secret, `API_KEY=5` is."""
    return is_secret_name(name) and name.lower() not in _OF_A_SENTENCE


# --- texts ------------------------------------------------------------------------------------------------------------
# Every pattern takes linear time on any text: after a failed match, the next one starts behind the scanned part.

_BY_PREFIX = {
    "xox": r"xox[a-z]-[\w%-]{4,}",
    "xapp-": r"xapp-[\w-]{4,}",
    "hf_": r"\bhf_\w{6,}",
    "api_org_": r"\bapi_org_\w{10,}",
    "sk-": r"\bsk-[\w-]{6,}",
    **{f"_{mode}_": rf"\b[rs]k_{mode}_\w{{10,}}" for mode in ("live", "test")},
    "whsec_": r"\bwhsec_[\w+/=-]{16,}",
    "GOCSPX-": r"\bGOCSPX-[\w-]{16,}",
    "gsk_": r"\bgsk_\w{20,}",
    "r8_": r"\br8_\w{20,}",
    "pplx-": r"\bpplx-\w{20,}",
    **{f"gh{kind}_": rf"\bgh{kind}_\w{{10,}}" for kind in "oprsu"},
    "github_pat_": r"\bgithub_pat_\w{10,}",
    **{f"gl{kind}-": rf"\bgl{kind}-[\w-]{{8,}}" for kind in ("pat", "rt", "dt", "cbt", "ptt", "ft", "soat", "agent")},
    "dckr_": r"\bdckr_[op]at_[\w-]{10,}",
    "nvapi-": r"\bnvapi-[\w-]{8,}",
    "AKIA": r"\bAKIA[0-9A-Z]{16}\b",
    "ASIA": r"\bASIA[0-9A-Z]{16}\b",
    "AIza": r"\bAIza[\w-]{30,}",
    "ya29.": r"\bya29\.[\w-]{20,}",
    "hvs.": r"\bhvs\.[\w-]{20,}",
    "glsa_": r"\bglsa_\w{20,}",
    "glc_": r"\bglc_[\w+/=]{20,}",
    "SG.": r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
    "tskey-": r"\btskey-[\w-]{16,}",
    "npm_": r"\bnpm_\w{20,}",
    "pypi-": r"\bpypi-[\w-]{16,}",
    "AGE-SECRET-KEY-": r"\bAGE-SECRET-KEY-\w{20,}",
    "dapi": r"\bdapi[0-9a-f]{32}(?:-\d)?\b",
    "8Q~": r"[\w.~-]{3}8Q~[\w.~-]{20,}",
    "xai-": r"\bxai-\w{20,}",
    "lsv2_": r"\blsv2_\w{20,}",
    "dop_v1_": r"\bdop_v1_\w{20,}",
    "ATATT3": r"\bATATT3[\w=-]{20,}",
    "eyJ": r"(?<![\w-])eyJ[\w-]{10,}(?:\.[\w-]*){2,4}",
    "-----BEGIN ": r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
}
_PREFIX = re.compile("|".join(map(re.escape, _BY_PREFIX)))
"""Few texts have one, and to look for it is thirty times cheaper than to try every pattern."""
_VALUES = re.compile("|".join(_BY_PREFIX.values()), re.DOTALL)
_NUMBERED = re.compile(r"[A-Z]{1,5}-\d{1,9}")
"""`INC-7`: no secret looks like it."""
MAX_NUMBERED = 15
_WEBHOOK = re.compile(
    r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/"
    r"|api\.telegram\.org/(?:file/)?bot"
    r"|\.webhook\.office\.com/webhookb2/)[^\s'\"<>|()]+"
)
_HEADER = re.compile(
    r"\b((?:Proxy-)?Authorization|(?:Set-)?Cookie)((?:\\{0,3}['\"])?[ \t]{0,3}:[ \t]{0,3}(?:\\{0,3}['\"])?)"
    r"[^\s'\"\\][^\r\n'\"\\]*",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)(\s{1,3})([\w.~+/=-]{6,})", re.IGNORECASE)
_WORDS = ("authentication", "authorization", "header", "headers", "information", "tokens")
_IN_URL = re.compile(r"(://[^/\s:@'\"]*):[^\s/'\"]+@|(://)[\w.~%-]{16,}@")
_SIGNED_URL = re.compile(r"([?&](?:X-(?:Amz|Goog)-Signature|Signature|sig)=)[^&\s'\"<>|()]+")
"""Of a bucket: anyone who has it may read. The bot's own links have `signature`, and are meant to be followed."""
_CONNECTION = re.compile(r"(;\s{0,3}pwd\s{0,3}=\s{0,3})[^;'\"\s]+", re.IGNORECASE)
"""Of a database, such as `Server=db;Uid=llm;Pwd=…`."""
_USER = re.compile(r"(?<![\w-])(-u|-U|--user|--proxy-user)(\\?['\"]?[\s=,]{0,3}\\?['\"]?)([^\s:'\"=,]+):([^\s'\"\\]+)")
_SHORT_OPTION = re.compile(
    r"\b((?:(?:mysql|mariadb)[\w-]{0,20}\b[^\n;|&]{0,200}?[ \t]-p"
    r"|redis-cli\b[^\n;|&]{0,200}?[ \t]-a[ \t]{1,3}|sshpass[ \t]{1,3}-p[ \t]{0,3}"
    r"|(?:docker|podman|nerdctl|registry)[ \t]{1,3}login\b[^\n;|&]{0,200}?[ \t]-p[ \t]{1,3}"
    r"|wandb[ \t]{1,3}login\b[^\n;|&]{0,200}?[ \t](?=[\w-]{32}))['\"]?)(?![$-])[^\s'\"]+"
)
"""The commands whose password follows an option that means something else elsewhere, or no option."""
_MORE_KEYS = re.compile(
    r"(?<![\w-])(--api[-_]key['\"]?[\s=,]{1,3}\(masked\))"
    r"((?:(?:,[ \t]{0,3}|[ \t]{1,3})['\"]?(?!-)[^\s'\",;|&()\[\]<>]{1,500}['\"]?){1,20})"
)
"""vLLM takes several keys."""
_KEY = re.compile(r"(?<![^\s'\",])(?=[^\s'\",]*[\d+/=~]|[^\s'\",]{16})[^\s'\",$][^\s'\",]*")
"""In a sentence, words follow."""
_OPTION = re.compile(r"(?<![\w-])--[\w.-]+")
_AFTER_OPTION = re.compile(r"['\"]?(?:,?[ \t]{0,3}\n\s{0,80}(?:- )?(?!-)|\s{0,3}[=, ]\s{0,3}(?!-))")
"""A list of arguments may have the value in its next line: `- --api-key`, `- VALUE`."""
_NAME = re.compile(r"(?<![\w-])[A-Za-z_][\w-]*")
_AFTER_NAME = re.compile(r"(?:\\{0,3}['\"])?\s{0,3}[=:](?:[ \t]{1,3}[|>][+-]?[ \t]{0,3}\n\s{0,80}|\s{0,3})(?!//)")
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|\\{1,3}\"[^\"]*\"?|\[[^\]]*\]?|[^\s'\",;)}\]]+", re.DOTALL)
_PAIR = re.compile(
    r"\b(name(?:\\{0,3}['\"])?\s{0,3}[=:]\s{0,3}(?:\\{0,3}['\"])?)([\w.-]{1,100})"
    r"((?:\\{0,3}['\"])?\s{0,3},?\s{0,80}(?:\\{0,3}['\"])?value(?:\\{0,3}['\"])?\s{0,3}[=:]\s{0,3})"
    rf"({_VALUE.pattern})",
    re.DOTALL | re.IGNORECASE,
)
"""A variable in the text of a manifest, in JSON, YAML, or as Go prints it."""
_SMALL_NUMBER = re.compile(r"-?\d{1,7}(?:\.\d{1,6})?[a-zA-Z%/]{0,6}")
_WORD = re.compile(r"[a-zA-Z%/-]{0,12}")


SHORT = 300
"""Texts up to this length repeat: labels, titles, names. Their results are cached."""


def redacted(text: str) -> str:
    """Returns the text with every secret in it masked."""
    return _redacted_once(text) if len(text) <= SHORT else _redacted(text)


@functools.lru_cache(maxsize=4096)
def _redacted_once(text: str) -> str:
    return _redacted(text)


def _redacted(text: str) -> str:
    if (text.isalnum() and text.islower() and not text.startswith("dapi")) or (
        len(text) <= MAX_NUMBERED and text[-1:].isdigit() and _NUMBERED.fullmatch(text)
    ):
        # An id or a hash: every other secret that shows by itself has a sign or a capital.
        return text
    if _PREFIX.search(text):
        text = _VALUES.sub(MASK, text)
    text = _WEBHOOK.sub(rf"\1{MASK}", text)
    # A sign that a pattern needs is found faster than the pattern.
    has_colon = ":" in text
    if has_colon:
        text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _BEARER.sub(_without_bearer, text)
    if has_colon:
        text = _IN_URL.sub(lambda found: f"{found[1]}:{MASK}@" if found[1] else f"{found[2]}{MASK}@", text)
        text = _USER.sub(_without_password, text)
    if "alue" in text:
        text = _PAIR.sub(_without_value, text)
    if "=" in text:
        text = _CONNECTION.sub(rf"\1{MASK}", _SIGNED_URL.sub(rf"\1{MASK}", text))
    if "--" in text:
        text = _without_values(text, _OPTION, _AFTER_OPTION)
        text = _MORE_KEYS.sub(lambda found: found[1] + _KEY.sub(MASK, found[2]), text)
    if " -" in text or "login" in text:
        text = _SHORT_OPTION.sub(rf"\1{MASK}", text)
    return _without_values(text, _NAME, _AFTER_NAME) if has_colon or "=" in text else text


def _without_values(text: str, names: re.Pattern[str], after: re.Pattern[str]) -> str:
    """Masks what follows each secret name. Text after another name is checked like any other text."""
    fragments: list[str] = []
    end = 0
    while (name := names.search(text, end)) is not None:
        between = after.match(text, name.end())
        value = _VALUE.match(text, between.end()) if between and _says_secret(name[0], between[0]) else None
        masks = value is not None and not _is_open(
            name[0], value[0], is_assigned=between is not None and between[0] == "="
        )
        upto = name.end() if value is None else value.start() if masks else value.end()
        fragments.append(text[end:upto] + (MASK if masks else ""))
        end = value.end() if value is not None else name.end()
    return "".join([*fragments, text[end:]])


def _without_value(found: re.Match[str]) -> str:
    before, name, between, value = found.groups()
    masks = is_secret_name(name) and not _is_open(name, value)
    return f"{before}{name}{between}{MASK}" if masks else found[0]


def _says_secret(name: str, between: str) -> bool:
    # `PASS=…` is an assignment, `pass: 5` a sentence.
    is_assigned = name.isupper() and between == "="
    return is_written_secret(name) or (is_assigned and name != "PWD" and is_secret_name(name)) or _is_auth(name)


def _is_open(name: str, value: str, *, is_assigned: bool = False) -> bool:
    plain = value.strip("'\"\\")
    # A reference (`$HF_TOKEN`, `$(HF_TOKEN)`) is only a name, and masked text stays readable.
    if plain.startswith("$") or MASK.startswith(plain):
        return True
    if _is_auth(name):
        return not _is_docker_auth(plain)
    # `first token: 5.2 s` is a time, `bytes per token: 131072` a size, `first token: unknown` a sentence.
    is_plain = _SMALL_NUMBER.fullmatch(plain) is not None or (not is_assigned and _WORD.fullmatch(plain) is not None)
    return name.lower() == "token" and is_plain


@functools.lru_cache(maxsize=4096)
def _is_auth(name: str) -> bool:
    return name.lower() in ("auth", "_auth")


def _is_docker_auth(value: str) -> bool:
    """`auth` of a docker configuration is `user:password` in base64; elsewhere the word is ambiguous."""
    try:
        return len(value) >= 8 and b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def _without_bearer(found: re.Match[str]) -> str:
    kind, between, value = found.groups()
    # `Basic` also starts sentences; only encoded text has digits, signs or capitals within a word.
    is_word = value.isalpha() and (value.islower() or value.istitle())
    is_text = value.lower() in _WORDS or (is_word and kind.lower() == "basic")
    return found[0] if is_text else f"{kind}{between}{MASK}"


def _without_password(found: re.Match[str]) -> str:
    option, between, user, password = found.groups()
    is_uid = user.isdigit() and password.isdigit()
    return found[0] if is_uid else f"{option}{between}{user}:{MASK}"


def place_of(url: str) -> str:
    """Where an address leads, without its login, path and query: in a webhook's, any of them may be the key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


# --- data -------------------------------------------------------------------------------------------------------------


def shown_value(name: str, value: Any) -> Any:
    """Returns a field's value in the form that people may see."""
    if value is None or isinstance(value, bool):
        return value
    if is_secret_name(name) and not (isinstance(value, str) and value.startswith("$")):
        return MASK
    if isinstance(value, str) and _is_auth(name) and _is_docker_auth(value):
        return MASK
    return redacted_data(value)


_PLAIN = frozenset({int, float, bool, type(None)})


def redacted_data(data: Any) -> Any:
    """Returns a copy of JSON with its secrets masked: by field name, in `{name, value}` pairs, after list options."""
    # Most of what is recorded is of these types, and `isinstance` is slow for an abstract one.
    kind = data.__class__
    if kind in _PLAIN:
        return data
    if isinstance(data, str):
        return redacted(data)
    if kind is dict or isinstance(data, Mapping):
        return _redacted_fields(data)
    if kind is list or kind is tuple or (isinstance(data, Sequence) and not isinstance(data, bytes)):
        return _redacted_list(data)
    return data


def _redacted_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    if "name" in data and "value" in data:
        name, value = data["name"], data["value"]
        if isinstance(name, str) and isinstance(value, str) and is_secret_name(name):
            return {**{key: redacted_data(item) for key, item in data.items()}, "value": shown_value(name, value)}
    return {key: item if item.__class__ in _PLAIN else _redacted_field(key, item) for key, item in data.items()}


def _redacted_field(key: str, item: Any) -> Any:
    if isinstance(item, str):
        if _may_hold_secret(key) and item and _holds_secret(key, item):
            return MASK
        return redacted(item)
    if item.__class__ is dict:
        return _redacted_fields(item)
    if isinstance(item, list | tuple) and is_written_secret(key):  # several keys, as vLLM takes them
        return [MASK if isinstance(each, str) else redacted_data(each) for each in item]
    return redacted_data(item)


@functools.lru_cache(maxsize=4096)
def _may_hold_secret(key: str) -> bool:
    return is_written_secret(key) or _is_auth(key)


def _holds_secret(key: str, item: str) -> bool:
    return is_written_secret(key) or (_is_auth(key) and _is_docker_auth(item))


def _redacted_list(items: Sequence[Any]) -> list[Any]:
    shown: list[Any] = []
    hides = False
    for item in items:
        is_option = isinstance(item, str) and item.startswith("-")
        hides = hides and not is_option
        hide = hides and isinstance(item, str) and not item.startswith("$")
        shown.append(MASK if hide else redacted_data(item))
        if is_option:
            hides = "=" not in item and is_secret_name(item)
    return shown
