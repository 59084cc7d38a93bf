"""Explainers of other packages, each as its package comes: all of them ask the black box about every row anew."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from studies.speed.subjects import Subject

Weights = NDArray[np.float64]
N_MORE = 1000
"""Samples where a package leaves the choice to its user, or takes too few."""


@contextmanager
def seeded() -> Iterator[None]:
    """The same draws in every run, also where a package draws from the global generators and takes no seed."""
    import torch

    before = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            np.random.seed(0)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


class Package:
    """Explains single rows; `weights` says how much every feature matters to each of some outputs."""

    several = True
    """Whether it explains several outputs of a row in one go, from the same queries."""

    def __init__(self, subject: Subject, box: Any) -> None:
        self.subject, self.box = subject, box

    def fit(self) -> None:
        """Whatever the package does before it sees a row to explain."""

    def explain(self, index: Sequence[int], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The k features of most weight for one output of each row; equal ones in an order drawn at random."""
        found = np.array([self.weights(i, [int(target)])[0] for i, target in zip(index, targets, strict=True)])
        uniforms = np.random.default_rng(0).random(found.shape)
        return np.lexsort((uniforms, -np.abs(found)), axis=1)[:, : self.subject.k]

    def explain_outputs(self, index: int, outputs: Sequence[int]) -> None:
        """Several outputs of one row."""
        self.weights(index, outputs)

    def weights(self, index: int, outputs: Sequence[int]) -> Weights:
        """(outputs, features)"""
        raise NotImplementedError

    def said(self, function: Any, points: Any, outputs: Sequence[int]) -> Weights:
        """What the black box says of some outputs."""
        return np.asarray(function(points))[:, list(outputs)].astype(np.float64)


class ShapKernel(Package):
    """shap.KernelExplainer: (2048 + 2 x features that differ) x background rows."""

    def weights(self, index: int, outputs: Sequence[int]) -> Weights:
        import shap

        function, x, background = self.subject.game(index, self.box)
        explainer = shap.KernelExplainer(lambda points: self.said(function, points, outputs), background)
        with seeded():
            return np.asarray(explainer.shap_values(x[None], silent=True))[0].T


class ShapPermutation(Package):
    """shap.PermutationExplainer: 500 evaluations, or as many as it needs at least, x background rows."""

    def weights(self, index: int, outputs: Sequence[int]) -> Weights:
        import shap

        function, x, background = self.subject.game(index, self.box)
        n_differ = int((background != x).any(axis=0).sum())
        masker = shap.maskers.Independent(background, max_samples=len(background))
        explainer = shap.PermutationExplainer(lambda points: self.said(function, points, outputs), masker, seed=0)
        found = explainer(x[None], max_evals=max(500, 2 * n_differ + 1), silent=True)
        return np.asarray(found.values).reshape(len(x), len(outputs)).T


class LimePackage(Package):
    """LimeTabularExplainer, 5,000 samples; for images LimeImageExplainer, 1,000, every pixel a segment."""

    def fit(self) -> None:
        from lime.lime_image import LimeImageExplainer
        from lime.lime_tabular import LimeTabularExplainer

        if self.subject.has_images:
            self.explainer = LimeImageExplainer(random_state=0)
        else:
            train = self.subject.train
            self.explainer = LimeTabularExplainer(
                sparse.csr_matrix(train) if sparse.issparse(train) else train, random_state=0
            )

    def weights(self, index: int, outputs: Sequence[int]) -> Weights:
        found = (self.of_image if self.subject.has_images else self.of_row)(index, outputs)
        weights = np.zeros((len(outputs), self.subject.n_players))
        for i in range(len(outputs)):
            for feature, weight in found.local_exp[i]:
                weights[i, feature] = weight
        return weights

    def of_row(self, index: int, outputs: Sequence[int]) -> Any:
        row = self.subject.rows[[index]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that labels are no probabilities
            return self.explainer.explain_instance(
                sparse.csr_matrix(row) if sparse.issparse(row) else row[0],
                lambda points: self.said(self.box, points, outputs),
                labels=range(len(outputs)),
                num_features=max(10, self.subject.k),
            )

    def of_image(self, index: int, outputs: Sequence[int]) -> Any:
        picture = self.subject.rows[index].transpose(1, 2, 0)
        size = picture.shape[:2]

        def answers(pictures: Any) -> Weights:
            given = np.asarray(pictures).transpose(0, 3, 1, 2).astype(self.subject.rows.dtype)
            return self.said(lambda images: self.box(images).reshape(len(images), -1), given, outputs)

        # lime shows its progress on standard error, whatever its settings.
        with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
            return self.explainer.explain_instance(
                picture,
                answers,
                labels=range(len(outputs)),
                top_labels=None,
                hide_color=0,
                segmentation_fn=lambda _: np.arange(self.subject.n_players).reshape(size),
            )


class Captum(Package):
    """An attribution of captum, through a function that asks the black box; absent is zero by default."""

    several = False
    attribution: str
    settings: ClassVar[dict[str, Any]] = {}

    def weights(self, index: int, outputs: Sequence[int]) -> Weights:
        import captum.attr
        import torch

        function, x, _ = self.subject.game(index, self.box)

        def forward(points: Any) -> Any:
            return torch.from_numpy(np.asarray(function(points.numpy())).astype(np.float64))

        method, inputs = getattr(captum.attr, self.attribution)(forward), torch.from_numpy(x[None])
        with seeded():
            found = [method.attribute(inputs, target=int(output), **self.settings) for output in outputs]
        return np.concatenate([one.numpy() for one in found])


class CaptumKernelShap(Captum):
    """captum's KernelShap: 25 samples, one row in a call."""

    attribution = "KernelShap"


class CaptumLime(Captum):
    """captum's Lime: 25 samples, one row in a call."""

    attribution = "Lime"


class CaptumFeatureAblation(Captum):
    """captum's FeatureAblation: one row for every feature, one row in a call."""

    attribution = "FeatureAblation"


class CaptumKernelShapMore(CaptumKernelShap):
    """The same with 1,000 samples, all in one call."""

    settings: ClassVar[dict[str, Any]] = {"n_samples": N_MORE, "perturbations_per_eval": N_MORE}


class CaptumLimeMore(CaptumLime):
    """The same with 1,000 samples, all in one call."""

    settings: ClassVar[dict[str, Any]] = {"n_samples": N_MORE, "perturbations_per_eval": N_MORE}


class Shapiq(Package):
    """shapiq.TabularExplainer for Shapley values, by its KernelSHAP: 1,000 coalitions x background rows."""

    several = False

    def weights(self, index: int, outputs: Sequence[int]) -> Weights:
        import shapiq

        function, x, background = self.subject.game(index, self.box)
        found = []
        for output in outputs:
            explainer = shapiq.TabularExplainer(
                lambda points, output=output: self.said(function, points, [output])[:, 0],
                background,
                imputer="baseline" if len(background) == 1 else "marginal",
                index="SV",
                max_order=1,
                random_state=0,
            )
            found.append(explainer.explain(x, budget=N_MORE).get_n_order_values(1))
        return np.array(found)


PACKAGES: dict[str, type[Package]] = {
    "shap KernelExplainer": ShapKernel,
    "shap PermutationExplainer": ShapPermutation,
    "lime": LimePackage,
    "captum KernelShap": CaptumKernelShap,
    "captum Lime": CaptumLime,
    "captum FeatureAblation": CaptumFeatureAblation,
    "captum KernelShap, 1,000 samples": CaptumKernelShapMore,
    "captum Lime, 1,000 samples": CaptumLimeMore,
    "shapiq KernelSHAP": Shapiq,
}
