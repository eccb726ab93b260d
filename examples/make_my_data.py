"""Writes the small datasets of docs/own_data.md and docs/link_prediction.md as folders of CSV files."""

import random
from pathlib import Path

random.seed(0)


def table(path, header, rows):
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


# molecules: rings of atoms, and how well each dissolves
atoms, bonds, molecules = [], [], []
for m in range(60):
    elements = [random.choice("CCCNO") for _ in range(random.randint(4, 8))]
    atoms += [(f"m{m}", i, e, random.choice([-1, 0, 0, 1])) for i, e in enumerate(elements)]
    bonds += [(f"m{m}", i, (i + 1) % len(elements), random.choice(["single", "double"])) for i in range(len(elements))]
    molecules.append((f"m{m}", f"{elements.count('O') - 0.5 * elements.count('C') + random.gauss(0, 0.1):.3f}"))
table("molecules/nodes.csv", "graph,id,element,charge", atoms)
table("molecules/edges.csv", "graph,source,target,bond", bonds)
table("molecules/graphs.csv", "id,label", molecules)

# papers: a topic, a year, three counts of words, and what each cites
topics = [random.randrange(3) for _ in range(150)]
papers = [(2000 + i // 10, *(random.randint(0, 4) + 3 * (k == t) for k in range(3)), ["graphs", "text", "vision"][t])
          for i, t in enumerate(topics)]  # fmt: skip
cites = {(i, random.randrange(i)) for i in range(1, 150) for _ in range(4)}
cites = sorted((i, j) for i, j in cites if topics[i] == topics[j] or random.random() < 0.2)
table("papers/nodes.csv", "time,words_a,words_b,words_c,label", papers)
table("papers/edges.csv", "source,target", cites)

# proteins: named by their gene; an expression, a compartment, a comment; interactions with a score
genes = [f"{random.choice('ABCDEFGH')}{random.choice('KLMNP')}{i}" for i in range(80)]
level = [random.gauss(5, 2) for _ in genes]
proteins = [
    (g, random.choice(["nucleus", "membrane", "cytosol"]), i % 7, f"{x:.3f}")
    for i, (g, x) in enumerate(zip(genes, level))
]
pairs = sorted({tuple(sorted(random.sample(range(80), 2))) for _ in range(240)})
table("proteins/nodes.csv", "gene,compartment,plate,expression", proteins)
table("proteins/edges.csv", "a,b,weight", [(genes[i], genes[j], f"{random.random():.2f}") for i, j in pairs])

# payments: accounts of a zip code, opened at a day; money goes from one to another
zips = [random.choice([1010, 1020, 1090, 8010]) for _ in range(120)]
fraud = [random.random() < 0.3 for _ in range(120)]
ages = ["" if i % 9 == 4 else f"{random.gauss(50 + 30 * fraud[i], 20):.2f}" for i in range(120)]
accounts = [(f"a{i}", i, zips[i], ages[i], "fraud" if fraud[i] else "sound") for i in range(120)]
money = [(*random.sample(range(120), 2), f"{random.expovariate(0.01):.2f}") for _ in range(500)]
table("payments/nodes.csv", "id,time,zip,age,label", accounts)
table("payments/edges.csv", "source,target,amount", [(f"a{i}", f"a{j}", m) for i, j, m in money])

# shop: who bought what
kinds = [random.randrange(2) for _ in range(60)]
users = [(f"u{i}", "user", f"{random.gauss(kinds[i], 0.5):.3f}") for i in range(40)]
items = [(f"i{i}", "item", f"{random.gauss(kinds[i + 40], 0.5):.3f}") for i in range(20)]
bought = sorted({(random.randrange(40), random.randrange(20)) for _ in range(300)})
bought = [(f"u{u}", f"i{i}") for u, i in bought if kinds[u] == kinds[i + 40] or random.random() < 0.2]
table("shop/nodes.csv", "id,kind,taste", users + items)
table("shop/edges.csv", "source,target", bought)

# people: three groups, and who knows whom
random.seed(0)
group = [i % 3 for i in range(60)]
pairs = {tuple(sorted(random.sample(range(60), 2))) for _ in range(900)}
pairs = sorted((a, b) for a, b in pairs if group[a] == group[b] or random.random() < 0.1)
persons = [(f"p{i}", f"{random.gauss(group[i], 1):.3f}", f"{random.gauss(0, 1):.3f}") for i in range(60)]
table("people/nodes.csv", "id,age,height", persons)
table("people/edges.csv", "source,target", [(f"p{a}", f"p{b}") for a, b in pairs])

# trades between firms, some of which are fraud
random.seed(0)
risky = [random.random() < 0.3 for _ in range(40)]
table("trades/nodes.csv", "id,debt", [(i, f"{random.gauss(2 * risky[i], 1):.3f}") for i in range(40)])
trades = []
for _ in range(300):
    a, b = random.sample(range(40), 2)
    amount = random.expovariate(1)
    is_fraud = (risky[a] and risky[b]) or amount > 3
    trades.append((a, b, f"{amount:.2f}", "fraud" if is_fraud else "sound"))
table("trades/edges.csv", "source,target,amount,label", trades)
