"""A model that tags texts: which words decided a tag?

Run it as a script, or cell by cell in an editor that knows `# %%`. It writes `texts.html` and `texts.png` into the
current folder. Needs: pip install "sointer[demo]"
"""

# %% [markdown]
# ## Texts and model
# Replace this cell with your own texts and any function from a list of strings to outputs.

# %%
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline

SENTENCES = {
    "sport": [
        "a late goal won the match",
        "the striker was injured",
        "the team trained in the rain",
        "fans left early",
    ],
    "music": ["the band played an old song", "her album sold well", "the singer was tired", "a long tour ended here"],
    "money": ["the bank raised its rates", "shares fell on monday", "the club took a loan", "profits were thin"],
    None: ["it rained all week", "the train was late again", "nobody knows what comes next", "we met at the station"],
}
TOPICS = ["sport", "music", "money"]

rng = np.random.default_rng(0)
texts, tags = [], []
for _ in range(800):
    topics = [topic for topic in TOPICS if rng.random() < 0.4]
    sentences = [rng.choice(SENTENCES[topic]) for topic in [*topics, None]]
    texts.append(". ".join(rng.permutation(sentences)) + ".")
    tags.append([int(topic in topics) for topic in TOPICS])

# Every tag's classifier also sees the tags before it, so outputs depend on each other.
pipeline = make_pipeline(TfidfVectorizer(), ClassifierChain(LogisticRegression(C=30))).fit(texts[:600], tags[:600])

# %% [markdown]
# ## Fit and explain
# Words are the features. A removed word is deleted from the text before the pipeline vectorises it.

# %%
from sointer import SOInter

explainer = SOInter(pipeline, k=3, output_names=TOPICS, query_budget=4000, random_state=0, verbose=False)
explainer.fit(texts[:600])
explanation = explainer.explain(texts[600:700], target="sport")

# %% [markdown]
# ## One text

# %%
row = int(np.flatnonzero(explanation.value.astype(float) > 0.5)[0])
print(texts[600 + row])
lines = explanation.to_frame()
print(lines[lines["sample"] == row][["value", "feature", "score", "effect"]].round(3).to_string(index=False))

# %% [markdown]
# ## All texts
# The words that most often decided each tag, with the share of texts with this tag that need them.

# %%
for topic in TOPICS:
    of_topic = explainer.explain(texts[600:], target=topic)
    words = of_topic.summary(5, value=1)[topic]
    print(f"{topic:6}", ", ".join(f"{word} ({share:.0%})" for word, share in words))

# %% [markdown]
# ## Verify
# Does the pipeline predict the same for a text of the selected words alone?

# %%
print(explanation.verify())

# %%
explanation.plot(row=row).figure.savefig("texts.png", dpi=120, bbox_inches="tight")
explanation.to_html("texts.html")
print("open texts.html")
