"""A model whose outputs are numbers: effects in their own units.

Run it as a script, or cell by cell in an editor that knows `# %%`. It writes `regression.png` into the current folder.
Needs: pip install "sointer[demo]"
"""

# %% [markdown]
# ## Data and model
# The energy that houses need for heating and cooling, in kWh per day. Heating depends on the walls, their insulation
# and the winter; cooling on windows and the summer, but only where windows face south. The door plays no part.

# %%
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor

rng = np.random.default_rng(0)
n = 3000
houses = pd.DataFrame(
    {
        "wall_area": rng.uniform(100, 400, n).round(),
        "insulation": rng.uniform(2, 20, n).round(1),
        "winter": rng.normal(2, 5, n).round(1),
        "window_area": rng.uniform(5, 40, n).round(1),
        "south": rng.integers(0, 2, n),
        "summer": rng.normal(24, 4, n).round(1),
        "door": rng.integers(0, 9, n),
    }
)
heating = 60 + houses["wall_area"] / 5 - 3 * houses["insulation"] - 3 * houses["winter"]
cooling = houses["south"] * houses["window_area"] * (houses["summer"] - 15).clip(lower=0) / 5
energy = pd.DataFrame({"heating": heating, "cooling": cooling})
model = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0)).fit(houses[:2000], energy[:2000])
held_out = houses[2000:]

# %% [markdown]
# ## Fit and explain
# SOInter infers from the predictions that the outputs are numbers.

# %%
from sointer import SOInter

explainer = SOInter(model, output_names=list(energy), random_state=0, verbose=False).fit(houses[:2000])
print(explainer.localities("heating"))
print(explainer.localities("cooling"))

# %% [markdown]
# ## One house
# `effect` is in kWh per day: how much more (or less) this house needs because of this value of the feature, compared
# with other houses.

# %%
explanation = explainer.explain(held_out[:200], target="heating")
house = int(np.argmax(explanation.value.astype(float)))
print(held_out.iloc[house].to_string())
lines = explanation.to_frame()
print(lines[lines["sample"] == house][["value", "feature", "score", "effect"]].round(2).to_string(index=False))
explanation.plot(row=house).figure.savefig("regression.png", dpi=120, bbox_inches="tight")

# %% [markdown]
# ## Verify
# A number stays the same if it changes by at most 0.1 standard deviations of the output, which is strict.

# %%
print("heating:", explanation.verify())
print("cooling:", explainer.explain(held_out[:200], target="cooling").verify())
