"""Every public name of stages and gt_bench has a docstring where it is defined."""

import ast
from collections.abc import Iterator, Mapping

from tests.conftest import ROOT

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text())
    for package in ("stages", "gt_bench")
    for path in sorted((ROOT / package).rglob("*.py"))
}
CLASSES = {node.name: node for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)}


def public(body: list[ast.stmt]) -> Iterator[Definition]:
    return (node for node in body if isinstance(node, Definition) and not node.name.startswith("_"))


def silent(tree: ast.Module, classes: Mapping[str, ast.ClassDef]) -> list[str]:
    """Public classes, functions and methods without a docstring of their own or of the method that they override."""
    found = ["the module"] if not ast.get_docstring(tree) else []
    for node in public(tree.body):
        found += [node.name] if not ast.get_docstring(node) else []
        if isinstance(node, ast.ClassDef):
            found += [
                f"{node.name}.{method.name}" for method in public(node.body) if not said(node, method.name, classes)
            ]
    return found


def said(cls: ast.ClassDef, method: str, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Whether the method has a docstring in `cls` or in one of its bases in `classes`."""
    own = any(ast.get_docstring(node) for node in public(cls.body) if node.name == method)
    bases = [classes[base.id] for base in cls.bases if isinstance(base, ast.Name) and base.id in classes]
    return own or any(said(base, method, classes) for base in bases)


def test_every_public_name_states_what_it_is():
    found = [f"{path}: {name}" for path, tree in TREES.items() for name in silent(tree, CLASSES)]
    assert not found, "without a docstring:\n" + "\n".join(found)


def test_a_name_without_a_word_is_found():
    tree = ast.parse(
        'class Base:\n    "A base."\n    def f(self): "Does."\n'
        "class A(Base):\n    def f(self): 1\n    def g(self): 1\n    def _h(self): 1"
    )
    classes = {node.name: node for node in tree.body}
    assert silent(tree, classes) == ["the module", "A", "A.g"]
