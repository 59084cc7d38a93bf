"""The truth of planted chains: changing other tokens never changes a label, changing its own tokens can."""

import numpy as np
import pytest

from sointer.errors import InputError
from sointer.zoo.chains import CHAIN_KINDS, PlantedChain


@pytest.mark.parametrize("kind", CHAIN_KINDS)
def test_truth_is_sufficient_and_every_token_of_it_matters(kind: str) -> None:
    chain, rng = PlantedChain(kind, seed=5), np.random.default_rng(0)
    longest = 0
    for tokens in chain.sequences(30, (1, 9), seed=1):
        labels = chain([tokens])[0]
        for i in range(len(tokens)):
            truth = chain.truth(tokens, i)
            longest = max(longest, len(truth))
            for _ in range(5):
                other = [t if j in truth else str(rng.choice(chain.words)) for j, t in enumerate(tokens)]
                assert chain([other])[0][i] == labels[i]
            for j in truth:
                changed = [[*tokens[:j], word, *tokens[j + 1 :]] for word in chain.words]
                assert any(row[i] != labels[i] for row in chain(changed))
    assert longest >= 4


def test_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="kind must be one of"):
        PlantedChain("loop")  # type: ignore[arg-type]
