"""The words of the engine's command line, each with the place where it is written.

A place is a text of the pod template or of a ConfigMap. References to the container's variables are resolved: `$(NAME)`
as Kubernetes expands it, `$NAME` and `${NAME}` as a shell does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.domain.cluster.json_patch import pointer
from bot.domain.cluster.objects import dig
from bot.domain.cluster.snapshot import Obj

REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_ONLY_A_REFERENCE = re.compile(r"(?:-{1,2}[\w.-]+=)?\$\(([A-Za-z_][\w.-]*)\)")


@dataclass(frozen=True)
class Place:
    """A text or a list of texts, by its JSON pointer in the pod template or in the named ConfigMap."""

    path: str
    config_map: str = ""


@dataclass(frozen=True)
class Spot:
    """Characters of a text, or elements of a list."""

    place: Place
    start: int
    end: int


@dataclass(frozen=True)
class Word:
    text: str
    spot: Spot
    """Its position on the command line."""
    in_shell: bool = False
    variable: str = ""
    """The variable whose value is the whole word, or everything after its `=`."""
    inner: Spot | None = None
    """Position in the text of a variable that holds several words."""
    is_open: bool = False
    """A reference that may expand to any number of words, and cannot be resolved."""


@dataclass(frozen=True)
class Variable:
    name: str
    text: str | None
    """As written, with references not yet resolved; None if it cannot be read here (a Secret, a field)."""
    place: Place | None = None
    """Where its text can be edited."""


@dataclass(frozen=True)
class Variables:
    by_name: Mapping[str, Variable] = field(default_factory=dict)
    unreadable: str = ""
    """Why there may be further variables."""

    def expanded(self, text: str, depth: int = 0) -> str:
        """Expands `$(NAME)` as Kubernetes does: undefined names stay as they are, `$$` is one dollar sign."""

        def value(found: re.Match[str]) -> str:
            if found[1] is None:
                return "$"
            known = self.by_name.get(found[1])
            if known is None or known.text is None or depth > len(self.by_name):
                return found[0]
            return self.expanded(known.text, depth + 1)

        return REFERENCE.sub(value, text)

    def value(self, name: str) -> str | None:
        known = self.by_name.get(name)
        return None if known is None or known.text is None else self.expanded(known.text)


def variables_of(container: Obj, index: int, config_maps: Mapping[str, Obj]) -> Variables:
    """Returns the container's environment; `env` overrides `envFrom`, and the last of several wins."""
    found: dict[str, Variable] = {}
    unreadable = ""
    for source in container.get("envFrom") or []:
        name = dig(source, "configMapRef", "name")
        if name is None or (name not in config_maps and not dig(source, "configMapRef", "optional")):
            what = f"ConfigMap {name}" if name else "a Secret"
            unreadable = f"some of its variables come from {what}, which is not read"
            continue
        for key, text in (dig(config_maps.get(name), "data") or {}).items():
            variable = f"{source.get('prefix') or ''}{key}"
            found[variable] = Variable(variable, str(text), Place(pointer("data", key), name))
    for number, entry in enumerate(container.get("env") or []):
        found[entry["name"]] = _variable(
            entry, pointer("spec", "containers", index, "env", number, "value"), config_maps
        )
    return Variables(found, unreadable)


def _variable(entry: Obj, path: str, config_maps: Mapping[str, Obj]) -> Variable:
    name = str(entry["name"])
    if "valueFrom" not in entry:
        return Variable(name, str(entry.get("value") or ""), Place(path) if "value" in entry else None)
    held, key = dig(entry, "valueFrom", "configMapKeyRef", "name"), dig(entry, "valueFrom", "configMapKeyRef", "key")
    text = dig(config_maps.get(held), "data", key) if held and key else None
    return Variable(name, text, Place(pointer("data", key), held) if text is not None else None)


def behind_engine_name(texts: Sequence[str]) -> int | None:
    """Returns the place of the first word behind those that start the engine; None if no words do."""
    for index, text in enumerate(texts):
        name = text.rsplit("/", 1)[-1]
        if name == "vllm" and texts[index + 1 : index + 2] == ["serve"]:
            return index + 2
        if text.startswith("vllm.entrypoints.") or name == "api_server.py":
            return index + 1
        if texts[index - 1 : index] == ["-m"] and re.fullmatch(r"vllm\w*", text):
            return index + 1
    return None


def list_words(place: Place, elements: Sequence[str], variables: Variables) -> list[Word]:
    """Returns one word for each element, whatever a reference in it expands to."""
    words = []
    for index, element in enumerate(elements):
        only = _ONLY_A_REFERENCE.fullmatch(element)
        spot = Spot(place, index, index + 1)
        words.append(Word(variables.expanded(element), spot, variable=only[1] if only else ""))
    return words


def split_words(variable: Variable, variables: Variables, spot: Spot, *, in_shell: bool) -> list[Word]:
    """Returns the words of a variable's text, split at blanks like an unquoted reference."""
    found = list(re.finditer(r"\S+", variable.text or ""))
    alone = variable.name if len(found) == 1 else ""
    return [
        Word(
            variables.expanded(part[0]),
            spot,
            in_shell=in_shell,
            variable=alone,
            inner=Spot(variable.place, part.start(), part.end()) if variable.place else None,
        )
        for part in found
    ]


def references_to(name: str, container: Obj) -> int:
    """Returns how often the container uses a variable: with other uses, its value must not be changed for one."""
    texts = [*(container.get("command") or []), *(container.get("args") or [])]
    texts += [str(entry.get("value") or "") for entry in container.get("env") or []]
    use = re.compile(rf"\$\({re.escape(name)}\)|\$\{{{re.escape(name)}\b|\${re.escape(name)}\b")
    return sum(len(use.findall(text)) for text in texts)
