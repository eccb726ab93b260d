"""Values that a class of a notebook or script reads are part of its identity."""

import itertools
import linecache
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from gt_bench.plugins import models
from gt_bench.plugins.adapter import OwnModelError
from gt_bench.plugins.captured_values import captured_values
from tests.conftest import ROOT
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


@pytest.fixture(autouse=True)
def _main(monkeypatch):
    """A module of the notebook, in which pickle finds its functions."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))


def net(expression: str) -> str:
    return textwrap.dedent(NET.replace("EXPRESSION", expression))


def in_notebook(*cells: str) -> type:
    """Run cells as IPython does, and return the class `Net`."""
    scope = vars(sys.modules["__main__"])
    scope.clear()
    scope["__name__"] = "__main__"
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
    ("cell", "change", "expression"),
    [
        ("act = nn.ReLU()", ("ReLU", "Tanh"), "act"),
        ("act = nn.LeakyReLU(0.1)", ("0.1", "0.9"), "act"),
        ("act = nn.Sequential(nn.LeakyReLU(0.1))", ("0.1", "0.9"), "act"),
        ("acts = {'a': [nn.ReLU()]}", ("ReLU", "Tanh"), "acts['a'][0]"),
        ("act = nn.Identity()\nact.register_forward_hook(lambda m, a, o: 1 * o)", ("1 *", "2 *"), "act"),
        ("class Act(nn.Module):\n    def __init__(self, s):\n        super().__init__()\n        self.s = s\n"
         "act = Act(1)", ("Act(1)", "Act(2)"), "act"),
        ("act = nn.LeakyReLU(0.1).forward", ("0.1", "0.9"), "act"),
        ("class S:\n    def __init__(self, s):\n        self.s = s\n    def act(self, x):\n        return self.s * x\n"
         "act = S(1).act", ("S(1)", "S(2)"), "act"),
        ("import torch_geometric.nn as gnn\nact = nn.Linear", ("nn.Linear", "gnn.Linear"), "act"),
        ("import torch.nn as lib", ("torch.nn", "torch_geometric.nn"), "lib.Linear(1, 1)"),
        ("from torch.nn.functional import softmax as act", ("torch.nn.functional", "torch_geometric.utils"), "act"),
        ("from pathlib import Path\nW = Path('a.pt')", ("a.pt", "b.pt"), "torch.load(W)"),
        ("import enum\nclass A(enum.Enum):\n    X = 1\n    def act(self, x):\n        return 1 * x\na = A.X",
         ("1 *", "2 *"), "a.act"),
        ("class C(dict):\n    def act(self, x):\n        return 1 * x\nc = C(a=1)", ("1 *", "2 *"), "c.act"),
        ("class C(dict):\n    pass\nc = C(a=1)\nc.s = 1", ("s = 1", "s = 2"), "c.s *"),
        ("class C(list):\n    def act(self, x):\n        return 1 * x\nc = C([1])", ("1 *", "2 *"), "c.act"),
        ("class C(int):\n    def act(self, x):\n        return 1 * x\nc = C(1)", ("1 *", "2 *"), "c.act"),
        ("from collections import defaultdict\nc = defaultdict(lambda: 1)", (": 1", ": 2"), "c['x'] *"),
        ("import torch_geometric.transforms as T\ndef act(x):\n    return 1 * x\nt = T.Compose([act])",
         ("1 *", "2 *"), "t"),
        ("from collections import deque\ndef act(x):\n    return 1 * x\nd = deque([act])", ("1 *", "2 *"), "d[0]"),
        ("from collections import deque\nclass A:\n    def __call__(self, x):\n        return 1 * x\nd = deque([A()])",
         ("1 *", "2 *"), "d[0]"),
        ("from functools import cache\n@cache\ndef s():\n    return 1", ("return 1", "return 2"), "s() *"),
        ("from functools import cache\nS = 1\n@cache\ndef s():\n    return S", ("S = 1", "S = 2"), "s() *"),
        ("@torch.no_grad()\ndef act(x):\n    return 1 * x", ("1 *", "2 *"), "act"),
        ("from functools import singledispatch\n@singledispatch\ndef act(x):\n    return x\n"
         "@act.register(torch.Tensor)\ndef _(x):\n    return 1 * x", ("1 *", "2 *"), "act"),
        ("from dataclasses import dataclass, field\n@dataclass\nclass C:\n"
         "    s: list = field(default_factory=lambda: [1])", ("[1]", "[2]"), "C().s[0] *"),
        ("from dataclasses import dataclass\n@dataclass(slots=True)\nclass C:\n    s: int = 1",
         ("= 1", "= 2"), "C().s *"),
        ("def act(x):\n    return act.s * x\nact.s = 1", ("s = 1", "s = 2"), "act"),
        ("def act(x, s=1):\n    return s * x\nact.__defaults__ = (2,)", ("(2,)", "(3,)"), "act"),
        ("class M(type):\n    @property\n    def s(cls):\n        return 1\nclass C(metaclass=M):\n    pass",
         ("return 1", "return 2"), "C.s *"),
        ("class D:\n    def __init__(self, s):\n        self.s = s\n    "
         "def __get__(self, o, c=None):\n        return self.s\n    "
         "def __set__(self, o, s):\n        pass\nclass C:\n    s = D(1)", ("D(1)", "D(2)"), "C().s *"),
        ("space = {}\nexec('def act(x): return 1 * x', space)\nact = space['act']", ("1 *", "2 *"), "act"),
        ("acts = [lambda x: 1 * x, lambda x: 2 * x]\nact = acts[0]", ("acts[0]", "acts[1]"), "act"),
        ("def times(n):\n    return lambda x: n * x\na, b = times(1), times(2)",
         ("times(1), times(2)", "times(2), times(1)"), "a(b(1)) *"),
        ("w = torch.eye(2).to_sparse() * 1.0", ("* 1.0", "* 2.0"), "w *"),
        ("import numpy as np\nw = np.array([1, None])", ("[1,", "[2,"), "w[0] *"),
        ("import numpy as np\nw = np.array(['a'])", ("'a'", "'b'"), "(w[0] == 'a') *"),
        ("import weakref\nclass K:\n    pass\nk = K()\nk.s = 1\nw = weakref.ref(k)", ("= 1", "= 2"), "w().s *"),
    ],
)  # fmt: skip
def test_every_kind_of_value_counts_by_its_content(cell, change, expression):
    model = net(f"{expression} (self.head(data.x))")
    first, same, other = (
        digest(in_notebook("import torch\nfrom torch import nn\n" + text, model))
        for text in (cell, cell, cell.replace(*change))
    )
    assert first == same
    assert first != other


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


def as_script(path: Path, arguments: object) -> type:
    """Run a file as `python path arguments` does, with its arguments as ARGUMENTS, and return the class `Net`."""
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


def test_sets_have_no_order(tmp_path):
    """The order of a set of texts differs between processes."""
    path = tmp_path / "script.py"
    text = "KEYS = {*'abcdef'}\nacts = [lambda x: x in {'a', 'b', 'c'}, lambda x: x in {'a', 'b'}]\n"
    path.write_text(text + net("acts[0](KEYS) * self.head(data.x)"))
    code = (
        "from pathlib import Path; from tests.gt_bench.plugins.test_captured_values import as_script, captured_values; "
        f"print(captured_values(as_script(Path({str(path)!r}), []), Path({str(path)!r}), Path({str(tmp_path)!r})))"
    )
    found = {
        subprocess.check_output(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        )
        for seed in "123"
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("script", "expression"),
    [
        ("from e_config import CFG\nCFG['s'] = ARGUMENTS", "CFG['s'] *"),
        ("import e_config\ne_config.CFG['s'] = ARGUMENTS\ndef s(module):\n    return module.CFG['s']", "s(e_config) *"),
        ("import os\nos.environ['E_SCALE'] = str(ARGUMENTS)\nfrom e_config import SCALE", "SCALE *"),
        ("if ARGUMENTS == 1:\n    def act(x):\n        return x\nelse:\n    def act(x):\n        return -x", "act"),
        ("class Act:\n    if ARGUMENTS == 1:\n        def act(self, x):\n            return x\n"
         "    else:\n        def act(self, x):\n            return -x", "Act().act"),
        ("acts = {1: lambda x: x, 2: lambda x: -x}\nact = acts[ARGUMENTS]", "act"),
        ("import torch\nact = torch.nn.ReLU() if ARGUMENTS == 1 else torch.nn.Tanh()", "act"),
    ],
)  # fmt: skip
def test_one_text_can_have_two_meanings(tmp_path, monkeypatch, script, expression):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "script.py"
    path.write_text(script + "\n" + net(f"{expression} (self.head(data.x))"))
    (tmp_path / "e_config.py").write_text("import os\nCFG = {'s': 0}\nSCALE = os.environ.get('E_SCALE')\n")
    found = []
    for argument in (1, 1, 2):
        sys.modules.pop("e_config", None)
        found.append(captured_values(as_script(path, argument), path, tmp_path))
    sys.modules.pop("e_config", None)
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_methods_that_torch_geometric_generates_do_not_count(tmp_path):
    path = tmp_path / "script.py"
    text = """
        from torch_geometric.nn import MessagePassing

        class Conv(MessagePassing):
            def forward(self, x, edge_index):
                return self.propagate(edge_index, x=x)

            def message(self, x_j):
                return x_j

        convs = {1: Conv}
    """
    path.write_text(textwrap.dedent(text) + net("convs[1]()(self.head(data.x), data.edge_index)"))
    cls = as_script(path, [])
    before = captured_values(cls, path, tmp_path)
    conv = vars(sys.modules[__name__])["Conv"] = cls.forward.__globals__["Conv"]
    conv.__module__ = __name__  # torch_geometric reads the text of the class's module
    conv()
    assert "_jinja_propagate" in vars(conv)
    assert captured_values(cls, path, tmp_path) == before


def test_a_method_that_was_replaced_counts(tmp_path):
    path = tmp_path / "script.py"
    text = "def act(self, x):\n    return x\ndef other(self, x):\n    return -x\n" + net("self.act(self.head(data.x))")
    path.write_text(text + "Net.act = act if ARGUMENTS == 1 else other\n")
    one, two = (captured_values(as_script(path, number), path, tmp_path) for number in (1, 2))
    assert one != two


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
    first, same, other = (digest(in_notebook(cell.format(value=value), model)) for value in (1.0, 1.0, 2.0))
    assert first == same
    assert first != other


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
    first, same, other = (digest(in_notebook(cell.format(value=value), model)) for value in (1.0, 1.0, 2.0))
    assert first == same
    assert first != other
