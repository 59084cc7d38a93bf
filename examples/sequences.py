"""A model that tags sequences: which tokens decided a label, directly or through other labels?

Run it as a script, or cell by cell in an editor that knows `# %%`. With usaddress, a published tagger of addresses, it
explains that one: pip install "sointer[addresses]"; without it, a tagger whose truth is known. It writes
`sequences.html` into the current folder.
"""

# %% [markdown]
# ## Sequences and model
# Replace this cell with your own token lists and any function from token lists to one label per token.

# %%
import numpy as np

try:
    import usaddress
except ImportError:
    usaddress = None

rng = np.random.default_rng(0)
if usaddress is None:
    from sointer.zoo import PlantedChain

    print("usaddress is not installed (pip install 'sointer[addresses]'): a planted tagger is explained instead")
    tagger = PlantedChain("carry", n_words=60, seed=1)  # a word has a label, or takes that of the word before it
    X = tagger.sequences(800, (4, 9), seed=0)
else:
    PARTS = {
        "number": [str(n) for n in rng.integers(1, 9999, 300)],
        "direction": ["N", "S", "East", "West", "N.W.", "North"],
        "name": ["Main", "Oak", "Park", "Washington", "Lake", "State", "Maple", "5th", "Broad", "Hill", "King", "Elm"],
        "type": ["St", "St.", "Ave", "Avenue", "Road", "Blvd", "Dr.", "Court", "Lane", "Way,"],
        "unit": ["Apt", "Suite", "Unit", "#", "Floor"],
        "city": ["Chicago,", "Springfield", "Boston,", "Portland", "Denver,", "Salem", "Houston,"],
        "state": ["IL", "MA", "OR", "CO", "TX", "NY"],
        "zip": [f"{n:05d}" for n in rng.integers(10000, 99999, 200)],
    }

    def address() -> list[str]:
        kinds = ["number", *(["direction"] if rng.random() < 0.4 else []), "name", "type"]
        kinds += ["unit", "number"] if rng.random() < 0.3 else []
        kinds += ["city", "state", *(["zip"] if rng.random() < 0.7 else [])] if rng.random() < 0.8 else []
        return [str(rng.choice(PARTS[kind])) for kind in kinds]

    def tagger(batch: list[list[str]]) -> list[list[str]]:
        return [list(usaddress.TAGGER.tag(usaddress.tokens2features(tokens))) for tokens in batch]

    X = [address() for _ in range(1000)]

# %% [markdown]
# ## Fit and explain
# One fit serves every position and length. A removed token is replaced by one from a similar position in the data.

# %%
from sointer import SequenceExplainer

explainer = SequenceExplainer(tagger, query_budget=5000, window=2, random_state=0, verbose=False).fit(X[:-100])
print(f"{explainer.n_queries_:,} queries; {explainer.held_out_agreement_:.0%} of held-out labels predicted correctly")
why = explainer.explain(X[-100:])
print(why)

# %% [markdown]
# ## Verify
# Does the label stay when all other tokens are replaced?

# %%
check = why.verify()
print(f"{check.fidelity:.0%} of labels stay, {why.n_selected.mean():.1f} tokens each")

# %% [markdown]
# ## Direct, or through other labels?

# %%
print(explainer.explain(X[-100:-99]).paths())

# %%
with open("sequences.html", "w", encoding="utf-8") as file:
    file.write(why._repr_html_())
print("open sequences.html")
