#!/usr/bin/env bash
# Without Python: fit, explain, evaluate, report. Needs: pip install "sointer[demo]"
set -euo pipefail

# Your table and your model. Here: four measurements per day, and a forest that predicts three outputs.
cat > days.py <<'PYTHON'
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

days = pd.DataFrame(np.random.default_rng(0).normal(size=(800, 6)).round(3),
                    columns=["sun", "cloud", "humidity", "pressure", "wind", "dust"])
outputs = pd.DataFrame({"warm": days["sun"] > days["cloud"], "wet": days["humidity"] > days["pressure"]})
outputs["rainbow"] = outputs["warm"] & outputs["wet"]
forest = RandomForestClassifier(30, random_state=0).fit(days, outputs.astype(int))
if __name__ == "__main__":
    days.to_csv("days.csv", index=False)
PYTHON
python days.py

# Fit once; the explainer is saved in the folder "why".
sointer fit --model days:forest --output-names warm,wet,rainbow --data days.csv --query-budget 2000 --out why

# What was learned, and which features matter where.
sointer info why

# What decided the rainbow on every day, as a table.
sointer explain why --data days.csv --model days:forest --target rainbow --out why.csv
head -n 5 why.csv

# Is it better than random features?
sointer evaluate why --model days:forest --data days.csv --rows 20 --against Random

# A report that works offline.
sointer report why --data days.csv --model days:forest --target rainbow --out rainbow.html
