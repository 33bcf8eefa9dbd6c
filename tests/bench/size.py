"""`python -m tests.bench.size`: the size of the code of `bot/`, and how its modules are connected."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.import_graph import cycles, imports_of

ROOT = Path(__file__).parents[2] / "bot"


def code_lines(source: str) -> int:
    """Lines with code on them: no blank lines, comments or docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstring_lines(ast.parse(source))))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def public_names(tree: ast.Module) -> int:
    """Functions, classes and constants at the top of a module, and methods and fields of classes, without `_`."""
    return sum(not name.startswith("_") for name in _names(tree.body))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from _names(node.body)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def figures() -> Mapping[str, str | int]:
    files = sorted(ROOT.rglob("*.py"))
    sources = {file: file.read_text() for file in files}
    trees = {file: ast.parse(source) for file, source in sources.items()}
    imports = imports_of("bot")
    importers = Counter(imported for every in imports.values() for imported in every)
    packages = {".".join(file.parent.relative_to(ROOT.parent).parts) for file in files if file.name == "__init__.py"}
    circles = cycles(imports)
    mutual = {frozenset((a, b)) for a, every in imports.items() for b in every if a in imports[b]}
    folders = Counter(file.parent for file in files if file.name != "__init__.py")
    largest, most = folders.most_common(1)[0]
    names = Counter(file.name for file in files if file.name not in ("__init__.py", "__main__.py"))
    return {
        "files": len(files),
        "lines": sum(source.count("\n") for source in sources.values()),
        "code lines": sum(map(code_lines, sources.values())),
        "modules with one importer": sum(importers[each] == 1 for each in imports.keys() - packages),
        "public names": sum(map(public_names, trees.values())),
        "pairs of modules that import each other": len(mutual),
        "pairs of packages that import each other": len(_mutual_packages(imports)),
        "import cycles (groups of modules)": len(circles),
        "modules in import cycles": sum(map(len, circles)),
        "file names that occur more than once": sum(count > 1 for count in names.values()),
        "largest folder": f"{largest.relative_to(ROOT.parent)} ({most} modules)",
    }


def _mutual_packages(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    pairs = ((a.rpartition(".")[0], b.rpartition(".")[0]) for a, every in imports.items() for b in every)
    edges = {(a, b) for a, b in pairs if a != b}
    return {frozenset(edge) for edge in edges if edge[::-1] in edges}


def main() -> None:
    for name, value in figures().items():
        print(f"{name:42} {value}")


if __name__ == "__main__":
    main()
