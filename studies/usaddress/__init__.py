"""Tagged addresses: what an explainer of sequences selects, against brute force and the CRF itself."""
