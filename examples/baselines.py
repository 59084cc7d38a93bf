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
# All methods explain the same held-out samples and get the model's predictions. How often does the model predict the
# same on the best k features alone (keep), and something else without them (delete)? Higher is better. KernelShap and
# Lime send 200 queries per sample here; TreeShap looks inside the forest; Random selects features at random.

# %%
from sointer.metrics import evaluate

found = evaluate(explainer, X[held_out], n_rows=25, against=["TreeShap", "KernelShap", "Lime", "Random"], n_samples=200)
print(found.table())

# %% [markdown]
# ## One sample, two methods
# Baselines have the same interface as SOInter.

# %%
from sointer.explainers.baselines import TreeShap

sample = X[held_out][:1]
ours = explainer.explain(sample, target="dangerous")
theirs = TreeShap(forest, k=5, **names, random_state=0, verbose=False).fit(X[train]).explain(sample, target="dangerous")
print("SOInter: ", ", ".join(ours.to_frame()["feature"]))
print("TreeShap:", ", ".join(theirs.to_frame()["feature"]))
print("SOInter's", ours.verify(), "\nTreeShap's", theirs.verify())
