"""Expressivity of models as proved in their papers, and the papers of models whose file names none.

Keys are names of models; a released form is listed under the name of the paper's form. "WL" is the Weisfeiler-Leman
test. For k > 2, k-WL equals (k - 1)-FWL.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metadata:
    """What is known of a model in addition to its registration.

    Attributes:
        expressivity: which graphs the model can distinguish, as proved in its paper.
        paper: authors, title, venue and link.
    """

    expressivity: str = "not stated"
    paper: str = ""


METADATA = {
    "tokengt": Metadata(
        "at least 1-WL (equal to 2-WL) with orthonormal identifiers; order k: at least k-WL (Theorem 2 and its "
        "corollary)",
    ),
    "tokengt-attention": Metadata(
        "one attention head, to approximate equivariant linear maps",
        "Kim et al.: Pure Transformers are Powerful Graph Learners, NeurIPS 2022. https://arxiv.org/abs/2207.02505",
    ),
    "hot": Metadata(
        "order k, dense: contains every equivariant linear layer of that order (k-IGN, equal to k-WL); sparse: "
        "not stated",
    ),
    "ppgt": Metadata(
        "GD-WL with RRWP as distance: above 1-WL, at most 3-WL (Proposition E.1)",
    ),
    "ppgt-node2subgraph": Metadata(
        "that of PPGT on the subgraph around each node",
    ),
    "edge-transformer": Metadata(
        "at least 3-WL, without any encoding (Theorem 1)",
    ),
    "edge-transformer-brec": Metadata(
        "not stated for this variant; at least 3-WL in the paper",
    ),
    "polynormer": Metadata(
        "polynomials of degree 2^L in the node features (Theorem 3.3); at least 1-WL, version v2 above 1-WL "
        "(Appendix K)",
    ),
    "gcn": Metadata(
        "at most 1-WL without encodings",
        "Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017. "
        "https://arxiv.org/abs/1609.02907",
    ),
    "gat": Metadata(
        "at most 1-WL without encodings",
        "Velickovic et al.: Graph Attention Networks, ICLR 2018. https://arxiv.org/abs/1710.10903",
    ),
    "sage": Metadata(
        "at most 1-WL without encodings",
        "Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs, NeurIPS 2017. "
        "https://arxiv.org/abs/1706.02216",
    ),
    "gin": Metadata(
        "1-WL",
        "Xu et al.: How Powerful are Graph Neural Networks?, ICLR 2019. https://arxiv.org/abs/1810.00826",
    ),
    "gin-bare": Metadata(
        "1-WL",
        "Xu et al.: How Powerful are Graph Neural Networks?, ICLR 2019. https://arxiv.org/abs/1810.00826",
    ),
    "classic-gnn": Metadata(
        "at most 1-WL without encodings",
    ),
    "gatedgcn": Metadata(
        "at most 1-WL without encodings",
    ),
    "heterophilous-gnn": Metadata(
        "at most 1-WL",
    ),
    "ogb-gnn": Metadata(
        "at most 1-WL",
    ),
    "difformer": Metadata(
        "at most 1-WL",
    ),
    "sgformer": Metadata(
        "at most 1-WL",
    ),
    "gprgnn": Metadata(
        "at most 1-WL",
    ),
    "appnp": Metadata(
        "at most 1-WL",
    ),
    "exphormer": Metadata(
        "at most 1-WL of the graph with the drawn edges, without encodings",
    ),
    "nodeformer": Metadata(
        "at most 1-WL",
    ),
    "sat": Metadata(
        "above 1-WL: a GNN of 1-WL on subgraphs up to k hops (its paper)",
    ),
    "linkx": Metadata(
        "all nodes: it has a parameter for each",
    ),
    "nagphormer": Metadata(
        "at most 1-WL without eigenvectors",
    ),
    "ppgn": Metadata(
        "3-WL",
        "Maron et al.: Provably Powerful Graph Networks, NeurIPS 2019. https://arxiv.org/abs/1905.11136",
    ),
    "hyper-sagnn": Metadata(
        "not stated",
        "Zhang, Zou, Ma: Hyper-SAGNN: a Self-Attention Based Graph Neural Network for Hypergraphs, ICLR 2020. "
        "https://arxiv.org/abs/1911.02613",
    ),
    "siam": Metadata(
        "none: it reads two elements at a time",
        "Serviansky et al.: Set2Graph: Learning Graphs From Sets, NeurIPS 2020. https://arxiv.org/abs/2002.08772",
    ),
    "gcnii": Metadata(
        "at most 1-WL without encodings",
        "Chen et al.: Simple and Deep Graph Convolutional Networks, ICML 2020. https://arxiv.org/abs/2007.02133",
    ),
    "gps": Metadata(
        "1-WL without encodings",
        "Rampasek et al.: Recipe for a General, Powerful, Scalable Graph Transformer, NeurIPS 2022. "
        "https://arxiv.org/abs/2205.12454",
    ),
    "graphormer": Metadata(
        "GD-WL with shortest-path distance: above 1-WL, at most 3-WL",
        "Ying et al.: Do Transformers Really Perform Badly for Graph Representation?, NeurIPS 2021. "
        "https://arxiv.org/abs/2106.05234",
    ),
    "grit": Metadata(
        "GD-WL with RRWP as distance: above 1-WL, at most 3-WL",
        "Ma et al.: Graph Inductive Biases in Transformers without Message Passing, ICML 2023. "
        "https://arxiv.org/abs/2305.17589",
    ),
    "i2gnn-ppgt": Metadata(
        "above PPGT's GD-WL; 76 % of BREC (PPGT, Section 5.1)",
        "Huang et al.: Boosting the Cycle Counting Power of Graph Neural Networks with I2-GNNs, ICLR 2023. "
        "https://arxiv.org/abs/2210.13978",
    ),
    "mlp": Metadata(
        "none: it reads node features alone",
        "none: the baseline without edges",
    ),
    "mlp-pi": Metadata(
        "equivariant linear layers between orders (Maron et al.)",
        "Maron et al.: Invariant and Equivariant Graph Networks, ICLR 2019. https://arxiv.org/abs/1812.09902",
    ),
    "s2g": Metadata(
        "any continuous map from sets to graphs, S2G+ (its paper)",
        "Serviansky et al.: Set2Graph: Learning Graphs From Sets, NeurIPS 2020. https://arxiv.org/abs/2002.08772",
    ),
}
