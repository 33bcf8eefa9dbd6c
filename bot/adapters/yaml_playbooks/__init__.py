"""Playbooks from YAML files. Reports all faults at once, with file, line and column.

`source` reads YAML, `fragments` what may be included, `playbook` one file, `folders` the whole library, and `stored`
the playbooks that a run keeps.
"""

from __future__ import annotations

from bot.adapters.yaml_playbooks.files import FRAGMENTS, FileHashes, never_read
from bot.adapters.yaml_playbooks.folders import load_folder, load_folders, with_packaged
from bot.adapters.yaml_playbooks.fragments import fragments_of, packaged_fragments, read_fragments
from bot.adapters.yaml_playbooks.playbook import check_file, check_text, load_playbook, load_text, origins_in
from bot.adapters.yaml_playbooks.source import load_table
from bot.adapters.yaml_playbooks.stored import StoredPlaybooks

__all__ = [
    "FRAGMENTS",
    "FileHashes",
    "StoredPlaybooks",
    "check_file",
    "check_text",
    "fragments_of",
    "load_folder",
    "load_folders",
    "load_playbook",
    "load_table",
    "load_text",
    "never_read",
    "origins_in",
    "packaged_fragments",
    "read_fragments",
    "with_packaged",
]
