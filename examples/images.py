"""A network that segments images: why is this pixel on?

Run it as a script, or cell by cell in an editor that knows `# %%`. It writes `images.png` and `images.html` into the
current folder. Needs: pip install "sointer[demo,images]"
"""

# %% [markdown]
# ## Images and model
# Replace this cell with your own: images (n, channels, height, width), and a model that returns masks
# (n, height, width). This small network learns to mark bright discs, and not the thin bright lines across them.

# %%
import numpy as np
import torch
from torch import nn

SIZE = 24
rng = np.random.default_rng(0)
rows, columns = np.mgrid[:SIZE, :SIZE]


def draw(n):
    """Grey images with a disc and two lines each, and the masks of the discs."""
    images, masks = rng.random((n, 1, SIZE, SIZE)) * 0.4, np.zeros((n, SIZE, SIZE))
    for image, mask in zip(images, masks, strict=True):
        row, column, radius = rng.integers([6, 6, 4], [SIZE - 6, SIZE - 6, 6])
        mask[:] = (rows - row) ** 2 + (columns - column) ** 2 <= radius**2
        image[0] += 0.5 * mask
        image[0, rng.integers(SIZE)] += 0.3
        image[0, :, rng.integers(SIZE)] += 0.3
    return images.astype(np.float32), masks.astype(np.float32)


images, masks = draw(300)
torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 1, 1)
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(150):
    batch = torch.from_numpy(rng.choice(240, 32, replace=False))
    outputs = network(torch.from_numpy(images)[batch])[:, 0]
    loss = nn.functional.binary_cross_entropy_with_logits(outputs, torch.from_numpy(masks)[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def segment(images):
    """What is explained: masks of 0 and 1."""
    with torch.no_grad():
        return (network(torch.as_tensor(images, dtype=torch.float32))[:, 0] > 0).numpy().astype(int)


held_out = images[240:]
print(f"pixels that are right, held-out images: {(segment(held_out) == masks[240:]).mean():.1%}")

# %% [markdown]
# ## Fit, once for all pixels
# What decides a pixel is learned from mixtures of two images, so that no mask can reveal a label by its shape.

# %%
from sointer import SOInter

explainer = SOInter(segment, query_budget=4000, random_state=0, verbose=False).fit(images[:240])
print(f"{explainer.n_queries_:,} queries for all {SIZE * SIZE} pixels")

# %% [markdown]
# ## One pixel
# `target` is a pixel, a box, or a region; here the middle of each image. This network sees 9 by 9 pixels, so the
# deciding pixels must lie within 4 rows and columns of the target.

# %%
target = (SIZE // 2, SIZE // 2)
explanation = explainer.explain(held_out, target=target, k=20)
distance = np.abs(np.asarray(explanation.pixels) - target).max(axis=-1)
print(f"{(distance <= 4).mean():.1%} of the 20 best pixels are where the network can see them")

# %% [markdown]
# ## Do the pixels carry the decision?
# Put the selected pixels into an image with another label at the target: does the label come with them (insert)? Put
# that image's pixels in their place: is the label gone (delete)? Higher is better. For a network that sees 9 by 9
# pixels, the nearest pixels are a good baseline, although they use only the position of the target.

# %%
from sointer.metrics import evaluate

print(evaluate(explainer, held_out, n_rows=15, against=["NearestPixels", "Random"], random_state=0).table())

# %% [markdown]
# ## Pictures, and a page of masks to click on

# %%
axes = explanation.plot()
np.ravel(axes)[0].figure.savefig("images.png", dpi=120, bbox_inches="tight")
print("open", explainer.report(held_out[:6], "images.html", title="Why is this pixel on?"))
