"""The engine flags of a pod template: the effective values, and where each one is written.

They are read from lists of words, a string for `sh -c`, variables, and a `--config` file from a ConfigMap. The last of
several wins, and the command line overrides the file, as in the engine. `unparsable` has the reason if the flags are
unknown.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.domain.cluster.capacity import accelerators_of
from bot.domain.cluster.json_patch import pointer
from bot.domain.cluster.objects import dig
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.command_words import (
    Place,
    Spot,
    Variables,
    Word,
    behind_engine_name,
    list_words,
    split_words,
    variables_of,
)
from bot.domain.flags.config_file import ConfigEntry, ConfigFileError, entries_of
from bot.domain.flags.flag_table import FlagSpec, FlagTable, FlagValue, newest_table, normalised, text_of
from bot.domain.flags.shell_words import Script, ShellScriptError, engine_words

SHELLS = ("sh", "bash", "ash", "dash", "zsh")
ENGINE_WORDS = ("vllm", "api_server", "openai")
ADDITIONAL_ARGS = "VLLM_ADDITIONAL_ARGS"
"""Images whose own entrypoint starts the engine append this variable's words."""
CONFIG = "--config"
_PROGRAM = re.compile(
    rf"(?:.*/)?(?:{'|'.join(SHELLS)}|env|exec|nohup|tini|dumb-init|numactl|torchrun|ray|python[\d.]*)|.*\.(?:sh|py)"
)
"""A first argument that is a program and not the engine's model: what it starts the engine with is not written here."""
_BETWEEN_WORDS = re.compile(r"[\s;&|()'\"\\]+")
_NUMBER = re.compile(r"^-\d+(\.\d+)?$")


@dataclass(frozen=True)
class WrittenFlag:
    """One occurrence of a flag, on the command line or in the config file."""

    name: str
    """The flag's full name (`--max-num-seqs`), whatever its spelling."""
    option: str
    """As written, without `=value`."""
    value: str | bool
    words: tuple[Word, ...] = ()
    """On the command line: the option and its values."""
    joined: bool = False
    """Whether the value follows after `=`."""
    entry: ConfigEntry | None = None
    """In the config file."""


@dataclass(frozen=True)
class FlagsInSpec:
    container: str = ""
    container_index: int = 0
    image: str = ""
    written: tuple[WrittenFlag, ...] = ()
    """In order of precedence, lowest first: the config file, then the command line."""
    words: tuple[Word, ...] = ()
    """All words of the engine's command line, behind those that start it."""
    home: Place = field(default_factory=lambda: Place(""))
    """Where to add a new flag if none is written yet."""
    variables: Variables = field(default_factory=Variables)
    config_file: Place | None = None
    """The ConfigMap's text behind `--config`."""
    unparsable: str = ""
    """Why the flags are unknown; empty if they are known."""

    @property
    def values(self) -> dict[str, str | bool]:
        """Flag to value; the last one written wins."""
        return {flag.name: flag.value for flag in self.written}

    def last(self, name: str) -> WrittenFlag | None:
        return next((flag for flag in reversed(self.written) if flag.name == name), None)


def engine_container(template: Obj) -> tuple[int, Obj] | None:
    """Returns the container that runs the engine: the only one, else the one whose command line starts it.

    Where no command line does, it is one with an accelerator that the image or the name says to be the engine, then the
    only one with an accelerator: a gateway beside the engine may have `openai` in its name.
    """
    containers = list(enumerate(dig(template, "spec", "containers") or []))
    if len(containers) == 1:
        return containers[0]
    named = [(index, container) for index, container in containers if _is_named_after_engine(container)]
    holding = [each for each in containers if accelerators_of({"spec": {"containers": [each[1]]}})]
    ranked = [
        *((index, container) for index, container in containers if _starts_engine(container)),
        *(each for each in named if each in holding),
        *(holding if len(holding) == 1 else ()),
        *named,
    ]
    return next(iter(ranked), None)


def _starts_engine(container: Obj) -> bool:
    """A script is not taken apart here: its words may stand anywhere in it."""
    return behind_engine_name(_BETWEEN_WORDS.split(" ".join(_elements(container)))) is not None


def _is_named_after_engine(container: Obj) -> bool:
    names = f"{container.get('image', '')} {container.get('name', '')}"
    return any(word in names for word in ENGINE_WORDS)


def engine_statuses(pod: Obj) -> list[Obj]:
    """Returns the status of the engine's container; those of all containers if none is recognised as the engine.

    Sidecars do not count, and neither do init containers: if one fails, no engine has started.
    """
    statuses, found = dig(pod, "status", "containerStatuses") or [], engine_container(pod)
    return [status for status in statuses if found is None or status.get("name") == found[1].get("name")]


def config_maps_named(template: Obj) -> frozenset[str]:
    """Returns the ConfigMaps that may set the engine's flags: its variables and its mounted files."""
    found = engine_container(template)
    if found is None:
        return frozenset()
    container = found[1]
    names = {dig(source, "configMapRef", "name") for source in container.get("envFrom") or []}
    names |= {dig(entry, "valueFrom", "configMapKeyRef", "name") for entry in container.get("env") or []}
    if any(CONFIG in element.replace("_", "-") for element in _elements(container)):
        mounted = {mount.get("name") for mount in container.get("volumeMounts") or []}
        volumes = [volume for volume in dig(template, "spec", "volumes") or [] if volume.get("name") in mounted]
        names |= {dig(volume, "configMap", "name") for volume in volumes}
    return frozenset(name for name in names if name)


def flags_of_template(
    template: Obj, table: FlagTable | None = None, config_maps: Mapping[str, Obj] | None = None
) -> FlagsInSpec:
    """Returns the flags of a pod template or of a pod (both have `spec.containers`)."""
    found = engine_container(template)
    if found is None:
        return FlagsInSpec(unparsable="no container of it is recognised as the engine")
    index, container = found
    table, config_maps = table or newest_table(), config_maps or {}
    known = FlagsInSpec(
        container=container.get("name", ""),
        container_index=index,
        image=container.get("image", ""),
        home=_list_place(index, "command" if container.get("command") and not container.get("args") else "args"),
        variables=variables_of(container, index, config_maps),
    )
    try:
        words = _command_line(container, index, known.variables)
        written = tuple(_flags_in(words, table))
        _refuse_open(words, written)
        known = replace(known, words=tuple(words), written=written)
        if _script_at(container) is not None:
            known = replace(known, home=words[-1].spot.place)
        config = known.last(CONFIG)
        return known if config is None else _with_file(known, template, str(config.value), table, config_maps)
    except (ShellScriptError, ConfigFileError) as error:
        return replace(known, written=(), unparsable=str(error))


def _refuse_open(words: Sequence[Word], written: Sequence[WrittenFlag]) -> None:
    """After a flag that takes one, an unknown word is its value, and the first word is the model."""
    values = [word for flag in written for word in flag.words]
    for word in words[1:]:
        if word.is_open and not any(word is value for value in values):
            raise ShellScriptError(f"{word.text} in its shell script may stand for flags that are not known")


def _elements(container: Obj) -> list[str]:
    return [*(container.get("command") or []), *(container.get("args") or [])]


def _list_place(index: int, name: str) -> Place:
    return Place(pointer("spec", "containers", index, name))


def _command_line(container: Obj, index: int, variables: Variables) -> list[Word]:
    elements = [
        word
        for name in ("command", "args")
        for word in list_words(_list_place(index, name), container.get(name) or [], variables)
    ]
    place = _script_at(container)
    if place is not None:
        script = elements[place]
        text = _elements(container)[place]
        at = Place(f"{script.spot.place.path}/{script.spot.start}")
        return engine_words(Script(text, at, variables, tuple(elements[place + 2 :])))
    command = container.get("command")
    if not command:
        return _behind_entrypoint(elements, index, variables)
    behind = behind_engine_name([word.text for word in elements])
    if behind is None:
        raise ShellScriptError(f"its command {command[0]} does not name the engine, so its flags are not known")
    return elements[behind:]


def _behind_entrypoint(arguments: list[Word], index: int, variables: Variables) -> list[Word]:
    """Without a command, the image's entrypoint gets the arguments: for its engine, or as a program to run."""
    texts = [word.text for word in arguments]
    behind = behind_engine_name(texts)
    if texts and behind is None and _PROGRAM.fullmatch(texts[0]):
        raise ShellScriptError(f"its first argument {texts[0]} is another program, so its flags are not known")
    extra = variables.by_name.get(ADDITIONAL_ARGS)
    if extra is None and not arguments:
        raise ShellScriptError("only its image says how the engine is started, so its flags are not known")
    if extra is not None and extra.text is None:
        raise ShellScriptError(f"its variable {ADDITIONAL_ARGS} cannot be read, so its flags are not known")
    end = Spot(_list_place(index, "args"), len(arguments), len(arguments))
    return [*arguments[behind or 0 :], *(split_words(extra, variables, end, in_shell=False) if extra else ())]


def _script_at(container: Obj) -> int | None:
    """Returns which of the container's words is a script for `sh -c`."""
    elements = _elements(container)
    shells = (number for number, element in enumerate(elements) if element.rsplit("/", 1)[-1] in SHELLS)
    return next((place for number in shells if (place := _behind_options(elements, number + 1)) is not None), None)


def _behind_options(elements: Sequence[str], place: int) -> int | None:
    """Returns the first word behind a shell's options; None if they do not make it a script (`-c`)."""
    is_script = False
    while place < len(elements) and elements[place].startswith(("-", "+")):
        option = elements[place]
        is_script = is_script or re.fullmatch(r"-\w*c\w*", option) is not None
        place += 2 if re.fullmatch(r"[-+]\w*[oO]\w*", option) else 1
        if option == "--":
            break
    return place if is_script and place < len(elements) else None


def _with_file(
    known: FlagsInSpec, template: Obj, path: str, table: FlagTable, config_maps: Mapping[str, Obj]
) -> FlagsInSpec:
    place = _config_file(template, known.container_index, path)
    if isinstance(place, str):
        return replace(known, written=(), unparsable=f"its flags come from a --config file: {place}")
    text = dig(config_maps.get(place.config_map), "data", _key_of(place))
    if text is None:
        reason = f"ConfigMap {place.config_map} could not be read, or has no {_key_of(place)}"
        return replace(known, written=(), unparsable=f"its flags come from a --config file: {reason}")
    in_file = tuple(_of_entry(entry, table) for entry in entries_of(text))
    return replace(known, written=(*in_file, *known.written), config_file=place)


def _key_of(place: Place) -> str:
    return place.path.removeprefix("/data/").replace("~1", "/").replace("~0", "~")


def _config_file(template: Obj, index: int, path: str) -> Place | str:
    """Returns the ConfigMap key that is mounted at `path`, or why there is none."""
    mounts = dig(template, "spec", "containers", index, "volumeMounts") or []
    path = posixpath.normpath(path)
    holding = [mount for mount in mounts if (path + "/").startswith(posixpath.normpath(mount["mountPath"]) + "/")]
    if not holding:
        return f"{path} is not on a volume"
    mount = max(holding, key=lambda one: len(one["mountPath"]))
    volume: Obj = next((v for v in dig(template, "spec", "volumes") or [] if v.get("name") == mount.get("name")), {})
    held = volume.get("configMap")
    if not held:
        return f"{path} does not come from a ConfigMap"
    inside = path.removeprefix(posixpath.normpath(mount["mountPath"])).lstrip("/")
    name = mount.get("subPath") or inside
    items = {item.get("path"): item.get("key") for item in held.get("items") or []}
    key = items.get(name) if items else name
    return Place(pointer("data", key), held.get("name", "")) if key else f"{path} is not in its volume"


def _of_entry(entry: ConfigEntry, table: FlagTable) -> WrittenFlag:
    name = table.name_of(entry.option)
    value = entry.value
    if isinstance(value, bool) and normalised(entry.option).startswith("--no-") and name is not None:
        value = not value
    return WrittenFlag(name or normalised(entry.option), entry.option, value, entry=entry)


def _flags_in(words: Sequence[Word], table: FlagTable) -> Iterator[WrittenFlag]:
    """Behind `--` there are no more flags."""
    index = 0
    while index < len(words) and words[index].text != "--":
        flag = _flag_at(words, index, table)
        if flag is not None:
            yield flag
        index += len(flag.words) if flag is not None else 1


def _flag_at(words: Sequence[Word], index: int, table: FlagTable) -> WrittenFlag | None:
    word = words[index]
    option, equals, behind = word.text.partition("=")
    if not option.startswith("-") or _NUMBER.match(option):
        return None
    name = table.name_of(option)
    # A single dash is an option only if the engine knows it (`-tp`); `python -m module` is not one.
    if name is None and not option.startswith("--"):
        return None
    spec = table.spec(name) if name else None
    if equals:
        return WrittenFlag(name or normalised(option), option, behind, (word,), joined=True)
    if spec is not None and spec.is_switch:
        is_on = not (spec.type == "switch" and normalised(option).startswith("--no-"))
        return WrittenFlag(name or option, option, is_on, (word,))
    count = _values_behind(words, index, spec)
    taken = tuple(words[index : index + 1 + count])
    value: str | bool = " ".join(one.text for one in taken[1:]) if count else True
    return WrittenFlag(name or normalised(option), option, value, taken)


def _values_behind(words: Sequence[Word], index: int, spec: FlagSpec | None) -> int:
    """Returns how many of the next words belong to this flag."""
    most = len(words) if spec is not None and spec.many else 1
    count = 0
    for word in words[index + 1 :]:
        if count == most or (word.text.startswith("-") and not _NUMBER.match(word.text)):
            break
        count += 1
    return count


@dataclass(frozen=True)
class FlagEdit:
    flag: str
    """The full name."""
    value: FlagValue | None
    """As the engine parses it; None removes the flag."""
    spelled: str = ""
    """As the author of the edit wrote it (`6G`)."""

    @property
    def text(self) -> str:
        return self.spelled or ("" if self.value is None else text_of(self.value))
