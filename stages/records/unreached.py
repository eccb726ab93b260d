"""Records of which nothing that their runs took has changed: a record names the forms of operations that it took, and the files of another form
decide none of its numbers; on a GPU, neither does the list of an operation's forms for CPUs. So code for CPUs can change without a GPU to compute
a GPU's records again.
"""

import ast
from pathlib import Path
from typing import TypeGuard

from stages.contents import Asked, Digests, Record
from stages.errors import UserError
from stages.fingerprint import ROOT, code_digest, module_digests, run_modules
from stages.own.sources import meaning
from stages.records.shipped import Shipped
from stages.store import run_digest

FORMS = ("numba", "triton")


class Reached(UserError, ValueError):
    """The message says which change the runs depend on, or why that is not known."""


def unreached(shipped: Shipped, task: str, older: Path) -> list[str]:
    """Modules in which the present tree differs from `older`, a checkout of the code that the records are of: all belong to forms that no run of
    the cell took. Raises Reached."""
    records = shipped.now().records
    ran = records[0]["deterministic"]
    try:
        modules = run_modules(ran["recipe"]["model"]["name"], task, ran["recipe"])
    except (KeyError, ModuleNotFoundError) as error:  # a model of one's own, or one that is gone
        raise Reached(f"the library has no such model: {error.args[0]}") from None
    try:
        found = code_digest(modules, older)
    except (ModuleNotFoundError, OSError, SyntaxError) as error:
        raise Reached(f"{older} is no checkout of this project: {error}") from None
    if {r["deterministic"]["digests"]["code"] for r in records} != {found}:
        raise Reached(f"{older} has not the code that its records are of: check out the commit at which they were not stale")
    before, now = module_digests(modules, older), module_digests(modules, ROOT)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    on_gpu = all(r["measured"]["device"] != "cpu" for r in records)
    for name in changed:
        if form_of(name) is None and not (on_gpu and _same_on_a_gpu(name, older)):
            raise Reached(f"{name} changed, which every run takes")
    for record in records:
        forms = record["measured"].get("forms")
        if forms is None:
            raise Reached("its records do not say which forms of operations they took")
        taken = {form for operations in forms.values() for of in operations.values() for form in of}
        if reached := [name for name in changed if form_of(name) in taken]:
            raise Reached(f"{reached[0]} changed, and seed {record['deterministic']['seed']} took {form_of(reached[0])}")
    return changed


def form_of(module: str) -> str | None:
    """The form of operations that a module belongs to; None where every run takes it."""
    package, _, name = module.rpartition(".")
    if package != "gt_models.kernels":
        return None
    return "numba" if name == "compiled" else next((form for form in FORMS if name.endswith(f"_{form}")), None)


def _same_on_a_gpu(module: str, older: Path) -> bool:
    """Whether both trees have a module of `gt_models.kernels` under this name that differs in forms for CPUs alone."""
    if not module.startswith("gt_models.kernels."):
        return False
    paths = [Path(root, *module.split(".")).with_suffix(".py") for root in (older, ROOT)]
    return all(path.is_file() for path in paths) and len({_on_a_gpu(path.read_text()) for path in paths}) == 1


def _on_a_gpu(source: str) -> str:
    """sha256 of what a module holds for a run on a GPU: without forms that name no devices, which are for CPUs, without private functions, classes and
    imports that nothing else in it names; what private ones are called does not matter."""
    tree = ast.parse(source)
    lists = {ast.unparse(node.targets[0]): node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)}
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Operation":
            name, reference, *rest = node.args
            if rest and (named := lists.get(ast.unparse(rest[0]))):
                tree.body.remove(named)
                rest[0] = named.value
            listed = rest[0].elts if rest and isinstance(rest[0], ast.List) else []
            forms: list[ast.expr] = [form for form in listed if isinstance(form, ast.Call) and _names_devices(form)]
            node.args = [name, reference, ast.List(forms, ast.Load()), *rest[1:]] if forms else [name, reference]
    text = ""
    while text != (text := ast.unparse(tree)):
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                node.names = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in used]
        tree.body = [node for node in tree.body if getattr(node, "names", True) and not (_is_private(node) and node.name not in used)]
    private = {node.name: f"_{number}" for number, node in enumerate(tree.body) if _is_private(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = private.get(node.id, node.id)
        elif _is_private(node):
            node.name = private.get(node.name, node.name)
    return meaning(ast.unparse(tree))


def _names_devices(form: ast.Call) -> bool:
    """Of a `Form`: its fourth argument."""
    return len(form.args) > 3 or any(keyword.arg == "devices" for keyword in form.keywords)


def _is_private(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith("_")


def asked_with(record: Record, code: str, test: bool = True) -> Asked:
    """Under which digest a record's run is found where the code alone has another one. `test`: False for a trial of a search."""
    ran = record["deterministic"]
    digests: Digests = {**ran["digests"], "code": code}
    digest = run_digest(ran["recipe"], ran["seed"], ran["split"], digests["data"], digests["encodings"], code, test)
    return {"digest": digest, "recipe": ran["recipe"], "digests": digests}
