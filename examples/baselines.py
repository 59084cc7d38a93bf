"""A fair comparison with SHAP, LIME and TreeSHAP: the same samples, the same measures, queries counted.

Run it as a script, or cell by cell in an editor that knows `# %%`. Needs: pip install "sointer[baselines,pandas]"
"""

# %% [markdown]
# ## Data and model
# A random forest with three outputs: whether a tumour is large, uneven or dangerous, from 30 measurements
# (scikit-learn's breast cancer data).

# %%
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

data = load_breast_cancer()
X = data.data
large, uneven = X[:, 3] > np.median(X[:, 3]), X[:, 1] > np.median(X[:, 1])
Y = np.column_stack([large, uneven, data.target == 0]).astype(int)
order = np.random.default_rng(0).permutation(len(X))
train, held_out = order[:400], order[400:]
forest = RandomForestClassifier(50, random_state=0).fit(X[train], Y[train])

# %% [markdown]
# ## Fit

# %%
from sointer import SOInter

names = {"feature_names": list(data.feature_names), "output_names": ["large", "uneven", "dangerous"]}
explainer = SOInter(forest, **names, random_state=0, verbose=False).fit(X[train])

# %% [markdown]
# ## Compare
# All methods explain the same held-out samples and know what the model predicts. The model is the judge: does it
# predict the same on the best k features alone (keep), and something else without them (delete)? More is better.
# KernelShap and Lime may query 200 rows about each sample here; TreeShap looks inside the forest, which the others do
# not; Random is what any choice reaches.

# %%
from sointer.metrics import evaluate

found = evaluate(explainer, X[held_out], n_rows=25, against=["TreeShap", "KernelShap", "Lime", "Random"], n_samples=200)
print(found.table())

# %% [markdown]
# ## One sample, two methods
# Baselines have the same interface, so any of them can be used alone.

# %%
from sointer.explainers.baselines import TreeShap

sample = X[held_out][:1]
ours = explainer.explain(sample, target="dangerous")
theirs = TreeShap(forest, k=5, **names, random_state=0, verbose=False).fit(X[train]).explain(sample, target="dangerous")
print("SOInter: ", ", ".join(ours.to_frame()["feature"]))
print("TreeShap:", ", ".join(theirs.to_frame()["feature"]))
print("SOInter's", ours.verify(), "\nTreeShap's", theirs.verify())
