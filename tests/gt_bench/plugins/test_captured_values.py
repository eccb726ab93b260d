"""Values that a class of a notebook or script reads are part of its identity."""

import itertools
import linecache
import sys
import textwrap
from pathlib import Path

import pytest

from gt_bench.plugins import models
from gt_bench.plugins.adapter import OwnModelError
from gt_bench.plugins.captured_values import captured_values
from tests.gt_bench.user_models import forgotten, write  # noqa: F401 - a fixture

NUMBER = itertools.count()
NET = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self, in_dim, out_dim, hidden=8):
            super().__init__()
            self.head = torch.nn.Linear(in_dim, out_dim)

        def forward(self, data):
            return EXPRESSION
"""


def net(expression: str) -> str:
    return textwrap.dedent(NET.replace("EXPRESSION", expression))


def in_notebook(*cells: str) -> type:
    """Run cells as IPython does, and return the class `Net`."""
    scope = {"__name__": "__main__"}
    for cell in cells:
        cell, name = textwrap.dedent(cell), f"/tmp/ipykernel_1/{next(NUMBER)}.py"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell.replace("%", "# %"), name, "exec"), scope)
    return scope["Net"]


def digest(cls: type) -> str:
    models.registry._INFOS.pop("Net", None)
    return models.files_digest(models.from_class(cls).name)


@pytest.mark.parametrize(
    ("cells", "change"),
    [
        (["SCALE = 1.0", net("SCALE * self.head(data.x)")], ("1.0", "2.0")),
        (["SCALE = 1.0\n" + net("SCALE * self.head(data.x)")], ("1.0", "2.0")),
        (["CONFIG = {'scale': [1, 2]}", net("CONFIG['scale'][1] * self.head(data.x)")], ("2]", "3]")),
        (["from types import SimpleNamespace\nargs = SimpleNamespace(scale=1)", net("args.scale * self.head(data.x)")],
         ("=1", "=2")),
        (["from dataclasses import dataclass\n@dataclass\nclass C:\n    scale: int\nc = C(1)",
          net("c.scale * self.head(data.x)")], ("(1)", "(2)")),
        (["import torch\nW = torch.ones(3)", net("W.sum() * self.head(data.x)")], ("ones", "zeros")),
        (["def act(x):\n    return x.relu()", net("act(self.head(data.x))")], ("relu", "tanh")),
        (["act = lambda x: x.relu()", net("act(self.head(data.x))")], ("relu", "tanh")),
        (["from functools import partial\nimport torch\nact = partial(torch.clamp, max=1)",
          net("act(self.head(data.x))")], ("max=1", "max=2")),
        (["import torch\nclass Layer(torch.nn.Module):\n    def forward(self, x):\n        return 1 * x",
          net("Layer()(self.head(data.x))")], ("1 * x", "2 * x")),
        (["import torch\nclass Base(torch.nn.Module):\n    scale = 1",
          net("self.scale * self.head(data.x)").replace("(torch.nn.Module)", "(Base)")], ("= 1", "= 2")),
        (["def make(scale):\n" + textwrap.indent(net("scale * self.head(data.x)"), "    ") + "\n    return Net",
          "Net = make(1)"], ("make(1)", "make(2)")),
        (["from functools import wraps\ndef times(n):\n    return lambda f: wraps(f)(lambda *a: n * f(*a))",
          net("self.head(data.x)").replace("def forward", "@times(1)\n    def forward")], ("times(1)", "times(2)")),
        ([net("self.head(data.x)"), "Net.scale = 1"], ("= 1", "= 2")),
        ([net("self.head(data.x)"), "Net.forward = lambda self, data: 1 * self.head(data.x)"], ("1 *", "2 *")),
        (["DIM = 4", net("self.head(data.x)").replace("hidden=8", "hidden=DIM")], ("4", "5")),
        (["from torch.nn.functional import relu as act", net("act(self.head(data.x))")], ("relu as", "gelu as")),
    ],
)  # fmt: skip
def test_what_a_class_of_a_notebook_reads_decides_its_digest(cells, change):
    changed = [cell.replace(*change) for cell in cells]
    assert changed != cells
    before = digest(in_notebook(*cells))
    assert digest(in_notebook(*cells)) == before
    assert digest(in_notebook(*changed)) != before


@pytest.mark.parametrize(
    "added",
    [
        "SCALE = 3\nx = 5\ndata = 7",  # names of attributes
        "import torch\ndevice = torch.device('cpu')",
        "def plot(net):\n    return 1",
        "%matplotlib inline\nSCALE = 3",
    ],
)
def test_what_it_does_not_read_does_not(added):
    text = net("self.head(data.x)")
    assert digest(in_notebook(added, text)) == digest(in_notebook(text))


def test_a_module_of_a_notebook_is_part_of_its_text(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def with_layer(text: str, cell: str) -> str:
        (tmp_path / "layers_of_e.py").write_text(text)
        sys.modules.pop("layers_of_e", None)
        return digest(
            in_notebook(cell, net("act(self.head(data.x))" if "act" in cell else "lay.act(self.head(data.x))"))
        )

    for cell in ("from layers_of_e import act", "import layers_of_e as lay"):
        before = with_layer("def act(x):\n    return x\n", cell)
        assert with_layer("def act(x):\n    return x  # the same\n", cell) == before
        assert with_layer("def act(x):\n    return -x\n", cell) != before


def as_script(path: Path, arguments: list[str]) -> type:
    """Run a file as `python path arguments` does, and return the class `Net`."""
    scope = {"__name__": "__main__", "ARGUMENTS": arguments}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["Net"]


def test_arguments_of_a_script_decide_and_its_literals_need_not(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("SCALE = int(ARGUMENTS[0])\n" + net("SCALE * self.head(data.x)"))
    one, two = (captured_values(as_script(path, [n]), path, tmp_path) for n in "12")
    assert (one, two) == (["SCALE=int 1"], ["SCALE=int 2"])
    path.write_text("SCALE = 2\nfrom torch.nn.functional import relu\n" + net("relu(SCALE * self.head(data.x))"))
    assert captured_values(as_script(path, []), path, tmp_path) == []
    path.write_text("SCALE = 2\nif ARGUMENTS:\n    SCALE = 3\n" + net("SCALE * self.head(data.x)"))
    assert captured_values(as_script(path, ["x"]), path, tmp_path) == ["SCALE=int 3"]


def test_a_class_of_a_file_that_a_program_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write("net_of_e.py", "SCALE = 2\n" + net("SCALE * self.head(data.x)"))
    import net_of_e

    assert models.from_class(net_of_e.Net).name == "net_of_e.py:Net"
    net_of_e.SCALE = 3
    with pytest.raises(OwnModelError, match=r"net_of_e.py: Net reads SCALE=int 3, which was set after the import"):
        models.from_class(net_of_e.Net)
    sys.modules.pop("net_of_e", None)


def test_attributes_of_an_object_that_cannot_be_pickled_count():
    cell = """
        import logging, torch_geometric.transforms as T
        log = logging.getLogger("mine")
        both = T.Compose([T.AddSelfLoops(fill_value={value}), lambda data: data])
    """
    model = net("log.info('') or self.head(both(data).x)")
    first, same, other = (in_notebook(cell.format(value=value), model) for value in (1.0, 1.0, 2.0))
    assert digest(first) == digest(same)
    assert digest(first) != digest(other)


@pytest.mark.parametrize(
    "cell",
    [
        "from dataclasses import dataclass\n@dataclass(slots=True)\nclass Config:\n    scale: float\n"
        "config = Config({value})",
        "class Base:\n    __slots__ = ('scale',)\nclass Config(Base):\n    __slots__ = ()\n"
        "config = Config()\nconfig.scale = {value}",
    ],
)
def test_attributes_in_slots_count(cell):
    model = net("config.scale * self.head(data.x)")
    first, same, other = (in_notebook(cell.format(value=value), model) for value in (1.0, 1.0, 2.0))
    assert digest(first) == digest(same)
    assert digest(first) != digest(other)
