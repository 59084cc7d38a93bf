"""A table and a scikit-learn model with several outputs: what decides each of them, and where?

Run it as a script, or cell by cell in an editor that knows `# %%`. It writes `tables.html` and two pictures into the
current folder. Needs: pip install "sointer[demo]"
"""

# %% [markdown]
# ## Data and model
# Replace this cell with your own: a DataFrame (or an array), and a fitted model with `predict` or `predict_proba`.
# This bank looks at income and debt of customers under 40, and at savings of the others. Customers who get a loan and
# have little debt are also offered a card, so the two outputs depend on each other. Rent and region play no part.

# %%
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

rng = np.random.default_rng(0)
n = 3000
customers = pd.DataFrame(
    {
        "age": rng.integers(18, 70, n),
        "income": rng.normal(40, 15, n).round(1),
        "debt": rng.normal(20, 10, n).clip(0).round(1),
        "savings": rng.uniform(0, 60, n).round(1),
        "rent": rng.normal(12, 3, n).round(1),
        "region": rng.choice(["north", "south", "west"], n),
    }
)
young = customers["age"] < 40
loan = np.where(young, customers["income"] - customers["debt"] > 20, customers["savings"] > 30)
decisions = pd.DataFrame({"loan": loan, "card": loan & (customers["debt"] < 20)}).astype(int)
bank = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["region"]), remainder="passthrough"),
    RandomForestClassifier(50, min_samples_leaf=5, max_features=None, random_state=0),
).fit(customers[:2000], decisions[:2000])
held_out = customers[2000:]

# %% [markdown]
# ## Fit, once
# SOInter queries the model on samples, unmasked and with features replaced, and learns how features and outputs depend
# on each other. One fit serves all outputs.

# %%
from sointer import SOInter

explainer = SOInter(bank, output_names=list(decisions), random_state=0, verbose=False).fit(customers[:2000])
print(f"{explainer.n_queries_:,} queries; {explainer.held_out_agreement_:.1%} of held-out outputs predicted correctly")

# %% [markdown]
# ## Which features matter where

# %%
print(explainer.localities("loan"))
print(explainer.localities("card"))

# %% [markdown]
# ## Why did this customer not get a loan?
# `value` is what the model predicts, here a probability. `effect` says which way a feature pushes it for this customer,
# in the unit of the output; `score` says how much the feature matters, without a sign.

# %%
explanation = explainer.explain(held_out[:200], target="loan")
refused = int(np.flatnonzero(explanation.value.astype(float) < 0.5)[0])
print(held_out.iloc[refused].to_string())
lines = explanation.to_frame()
print(lines[lines["sample"] == refused][["value", "feature", "score", "effect"]].round(3).to_string(index=False))
explanation.plot(row=refused).figure.savefig("tables-customer.png", dpi=120, bbox_inches="tight")

# %% [markdown]
# ## Verify
# Does the model predict the same when only the selected features are kept, and the others are those of other customers?

# %%
check = explanation.verify()
print(check)
print(f"{check.confirmed.mean():.0%} of customers: the selected features alone are enough")

# %% [markdown]
# ## A report
# One file that works offline, with all outputs and samples.

# %%
print("open", explainer.report(held_out[:100], "tables.html", title="Who gets a loan?"))
explainer.localities("loan").plot().figure.savefig("tables-localities.png", dpi=120, bbox_inches="tight")
